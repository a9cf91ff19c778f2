"""Values in Avro's encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import jvm


def zigzag(number: int) -> bytes:
    rest, packed = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        packed.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*packed, rest])


def encoded(spark: SparkSession, schema: Mapping[str, Any] | str, record: Mapping[str, Any]) -> bytes:
    """A record as Avro's own writer encodes it; `record` in Avro's JSON encoding, where unions name their branch."""
    packages = jvm(spark)
    avro = packages.org.apache.avro
    parsed = avro.Schema.Parser().parse(schema if isinstance(schema, str) else json.dumps(schema))
    decoder = avro.io.DecoderFactory.get().jsonDecoder(parsed, json.dumps(record))
    read = avro.generic.GenericDatumReader(parsed).read(None, decoder)
    out = packages.java.io.ByteArrayOutputStream()
    encoder = avro.io.EncoderFactory.get().binaryEncoder(out, None)
    avro.generic.GenericDatumWriter(parsed).write(read, encoder)
    encoder.flush()
    return bytes(out.toByteArray())


def framed(schema_id: int, body: bytes) -> bytes:
    """A value in Confluent's framing."""
    return b"\0" + schema_id.to_bytes(4, "big") + body
