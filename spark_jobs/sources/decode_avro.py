"""Decode Avro bytes by the writer's schema. Bytes that do not fit get a reason; they are never lost or made null."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from spark_jobs.sources.decode import NO_VALUE, REASON
from spark_jobs.spark.gateway import JAVA_ERRORS, jvm
from spark_jobs.spark.java import java_reason

NOT_AVRO = "not valid Avro for this schema"
NOT_FRAMED = "not in Confluent's framing: the first byte is not 0"

_DECODED = "rw_decoded"
_BODY = "rw_body"
_FRAME = 5
"""The bytes of Confluent's framing: a zero, and the four of a schema's id."""


def avro_fields(spark: SparkSession, schema: str) -> StructType:
    """The Spark fields of an Avro record's schema (JSON). Raises ValueError with Avro's reason."""
    packages = jvm(spark)
    try:
        parsed = packages.org.apache.avro.Schema.Parser().parse(schema)
        kind = packages.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed).dataType()
    except JAVA_ERRORS as error:
        raise ValueError(java_reason(error).partition(": ")[2] or java_reason(error)) from error
    return StructType.fromJson(json.loads(kind.json()))


def decode_avro(frame: DataFrame, value: Column, schema: str, fields: StructType, *, framed: bool) -> DataFrame:
    """Add the schema's fields to `frame`, and REASON: why the bytes cannot be decoded; null where they can.

    Avro does not notice bytes behind the end of a record. So each record is encoded again and the lengths are compared,
    except for schemas with arrays or maps, which have more than one encoding.

    Args:
        value: The column of bytes.
        schema: The writer's schema, as Avro JSON.
        fields: The schema's Spark fields, see `avro_fields`.
        framed: Whether each value begins with Confluent's framing.
    """
    body = F.substring(value, _FRAME + 1, 2**31 - 1) if framed else value
    bodied = frame.withColumn(_BODY, body)
    decoder = F.array(from_avro(F.col(_BODY), schema, {"mode": "PERMISSIVE"}))
    # A generator of one row: Spark does not copy it into the filters and columns that use the fields.
    decoded = bodied.select("*", F.explode_outer(decoder).alias(_DECODED))
    names = [field.name for field in fields]
    # A malformed record becomes a struct of nulls, or null.
    failed = F.col(_DECODED).isNull() | _all_null(names, schema)
    if not _has_many_encodings(json.loads(schema)):
        failed = failed | (F.length(to_avro(F.col(_DECODED), schema)) != F.length(_BODY))
    reason = F.when(failed, NOT_AVRO)
    if framed:
        reason = F.when(F.substring(value, 1, 1) != F.lit(b"\x00"), NOT_FRAMED).otherwise(reason)
    columns = {name: F.col(_DECODED)[name] for name in names}
    return decoded.withColumns({REASON: F.when(value.isNull(), NO_VALUE).otherwise(reason), **columns}).drop(
        _DECODED, _BODY
    )


def _all_null(names: list[str], schema: str) -> Column:
    """Whether all fields that the schema does not let be null are null."""
    needed = [field["name"] for field in json.loads(schema)["fields"] if not _may_be_null(field["type"])]
    missing = F.lit(False)
    for name in (name for name in names if name in needed):
        missing = missing | F.col(_DECODED)[name].isNull()
    return missing


def _may_be_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _has_many_encodings(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("type") in ("array", "map") or any(_has_many_encodings(value) for value in node.values())
    return isinstance(node, list) and any(_has_many_encodings(value) for value in node)
