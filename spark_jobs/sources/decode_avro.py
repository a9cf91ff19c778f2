"""Decode Avro bytes by the writer's schema. Bytes that do not fit get a reason; they are never lost or made null."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StringType, StructType

from spark_jobs.sources.decode import NO_VALUE, NOT_UTF8, REASON
from spark_jobs.spark.gateway import JAVA_ERRORS, jvm
from spark_jobs.spark.java import java_reason

NOT_AVRO = "not valid Avro for this schema"
NOT_FRAMED = "not in Confluent's framing: the first byte is not 0"

_DECODED = "rw_decoded"
_BODY = "rw_body"
_FRAME = 5
"""The bytes of Confluent's framing: a zero, and the four of a schema's id."""
SCHEMA_ID = "rw_schema_id"
"""The schema's id in a record's framing, where the definition does not say which one its schema has."""
_MARK = b"\x9d\x13\xe2\x57\xb8\x0f\xc4\x6a"
"""Stands behind each record: what a decoder finds there shows whether it has read exactly the record's bytes."""


def avro_fields(spark: SparkSession, schema: str) -> StructType:
    """The Spark fields of an Avro record's schema (JSON). Raises ValueError with Avro's reason."""
    packages = jvm(spark)
    try:
        parsed = packages.org.apache.avro.Schema.Parser().parse(schema)
        kind = packages.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed).dataType()
    except JAVA_ERRORS as error:
        raise ValueError(java_reason(error).partition(": ")[2] or java_reason(error)) from error
    return StructType.fromJson(json.loads(kind.json()))


def decode_avro(
    frame: DataFrame, value: Column, schema: str, fields: StructType, *, framed: bool, schema_id: int | None = None
) -> DataFrame:
    """Add the schema's fields to `frame`, and REASON: why the bytes cannot be decoded; null where they can.

    Avro itself does not notice bytes behind the end of a record. So a mark is put behind each one, and is decoded with
    it: it is whole only if the record before it had exactly its own bytes.

    Args:
        value: The column of bytes.
        schema: The writer's schema, as Avro JSON.
        fields: The schema's Spark fields, see `avro_fields`.
        framed: Whether each value begins with Confluent's framing.
        schema_id: The schema's id in the framing: records of other ids cannot be decoded by this schema. None: it is
            not known, and the column SCHEMA_ID says which id each record has.
    """
    body = F.substring(value, _FRAME + 1, 2**31 - 1) if framed else value
    bodied = frame.withColumn(_BODY, F.concat(body, F.lit(_MARK)))
    decoder = F.array(from_avro(F.col(_BODY), _marked(schema), {"mode": "PERMISSIVE"}))
    # A generator of one row: Spark does not copy it into the filters and columns that use the fields.
    decoded = bodied.select("*", F.explode_outer(decoder).alias(_DECODED))
    # A malformed record becomes a struct of nulls, or null.
    record, mark = F.col(_DECODED)["record"], F.col(_DECODED)["mark"]
    reason = F.when(mark.isNull() | (mark != F.lit(_MARK)), NOT_AVRO)
    if texts := [_field_at(record, path) for path in _text_fields(fields)]:
        broken = F.lit(False)
        for text in texts:
            broken = broken | ~F.coalesce(F.is_valid_utf8(text), F.lit(True))
        reason = reason.when(broken, NOT_UTF8)
    columns = {name: record[name] for name in fields.names}
    if framed:
        identity = F.substring(value, 2, _FRAME - 1)
        number = F.conv(F.hex(identity), 16, 10)
        is_framed = F.substring(value, 1, 1) == F.lit(b"\x00")
        why = F.when(~is_framed | (F.octet_length(value) < _FRAME), NOT_FRAMED)
        if schema_id is None:
            columns[SCHEMA_ID] = F.when(is_framed, number.cast("bigint"))
        else:
            other = F.concat(F.lit("schema id "), number, F.lit(f", and the definition's schema has id {schema_id}"))
            why = why.when(identity != F.lit(schema_id.to_bytes(4, "big")), other)
        reason = F.coalesce(why, reason)
    columns[REASON] = F.when(value.isNull(), NO_VALUE).otherwise(reason)
    return decoded.withColumns(columns).drop(_DECODED, _BODY)


def _marked(schema: str) -> str:
    """The schema of a record of this schema with the mark behind it."""
    mark = {"type": "fixed", "name": "rw_mark", "size": len(_MARK)}
    fields = [{"name": "record", "type": json.loads(schema)}, {"name": "mark", "type": mark}]
    return json.dumps({"type": "record", "name": "rw_marked", "fields": fields})


def _field_at(record: Column, path: tuple[str, ...]) -> Column:
    """The field at a path through structs."""
    for name in path:
        record = record[name]
    return record


def _text_fields(fields: StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields:
        here = (*path, field.name)
        if isinstance(field.dataType, StringType):
            yield here
        elif isinstance(field.dataType, StructType):
            yield from _text_fields(field.dataType, here)
