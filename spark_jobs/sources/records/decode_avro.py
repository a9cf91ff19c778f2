"""Decode Avro bytes by the writer's schema. Bytes that do not fit get a reason; they are never lost or made null.

In Confluent's framing a value is a zero byte, the four of a schema's id, and the encoded record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from spark_jobs.pins import PinnedSchemas
from spark_jobs.sources.records.avro_resolution import incompatibility, other_logical_type, parsed_schema
from spark_jobs.sources.records.decode import NO_VALUE, NOT_UTF8, REASON
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.gateway import JAVA_ERRORS, jvm, literal_map
from spark_jobs.spark.java import java_reason

NOT_AVRO = "not valid Avro for this schema"

_DECODED = "rw_decoded"
_BODY = "rw_body"
_ID = "rw_writer"
SCHEMA_ID = "rw_schema_id"
"""The schema's id in a record's framing, where the definition does not say which one its schema has."""
_MARK = b"\x9d\x13\xe2\x57\xb8\x0f\xc4\x6a"
"""Stands behind each record: what a decoder finds there shows whether it has read exactly the record's bytes."""


def avro_fields(spark: SparkSession, schema: str) -> StructType:
    """The Spark fields of an Avro record's schema (JSON). Raises ValueError with Avro's reason."""
    parsed = parsed_schema(spark, schema)
    try:
        kind = jvm(spark).org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed).dataType()
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
    decoder = _from_avro(_marked(schema), {"mode": "PERMISSIVE"})
    if not framed:
        return _decoded(frame, value, value, decoder, fields)
    decoded = _decoded(frame, value, body_of(value), decoder, fields, why_not_framed(value, schema_id))
    return decoded if schema_id is not None else decoded.withColumn(SCHEMA_ID, id_of(value))


def decode_by_writers(frame: DataFrame, value: Column, schemas: PinnedSchemas, fields: StructType) -> DataFrame:
    """Decodes Avro values of several writers: each by the schema of its id, into the reader's schema."""
    spark, reader = frame.sparkSession, _marked(schemas.reader)
    decoder, no_decoder, no_result = None, F.lit(None).cast("string"), F.lit(NOT_AVRO)
    for number, writer in sorted(schemas.writers.items()):
        is_own = F.col(_ID) == F.lit(number)
        if (other := other_logical_type(schemas.reader, writer)) is not None:
            no_decoder = F.when(is_own, f"schema id {number}: {other}").otherwise(no_decoder)
            continue
        if (why := incompatibility(spark, schemas.reader, writer)) is not None:
            no_result = F.when(
                is_own, f"schema id {number} does not fit the schema that it is read by: {why}"
            ).otherwise(no_result)
        own = _from_avro(_marked(writer), {"mode": "PERMISSIVE", "avroSchema": reader})
        decoder = F.when(is_own, own) if decoder is None else decoder.when(is_own, own)
    if decoder is None:
        decoder = F.when(F.lit(False), _from_avro(reader, {"mode": "PERMISSIVE"}))
    identified = frame.withColumn(_ID, id_of(value))
    why_not = F.coalesce(why_not_framed(value, schemas.writers.keys(), schemas.subject), no_decoder)
    return _decoded(identified, value, body_of(value), decoder, fields, why_not, no_result).drop(_ID)


def _from_avro(schema: str, options: Mapping[str, str]) -> Column:
    """Spark's `from_avro` of the body. Its Python function makes a map of the options that is not safe for threads."""
    return F.call_function("from_avro", F.col(_BODY), F.lit(schema), literal_map(options))


def _decoded(
    frame: DataFrame,
    value: Column,
    body: Column,
    decoder: Column,
    fields: StructType,
    why_not: Column | None = None,
    no_result: Column | None = None,
) -> DataFrame:
    """The fields of what `decoder` makes of `_BODY`, and REASON: `why_not`, or that it could not be decoded."""
    bodied = frame.withColumn(_BODY, F.concat(body, F.lit(_MARK)))
    # A generator of one row: Spark does not copy it into the filters and columns that use the fields.
    decoded = bodied.select("*", F.explode_outer(F.array(decoder)).alias(_DECODED))
    # A malformed record becomes a struct of nulls, or null.
    record, mark = F.col(_DECODED)["record"], F.col(_DECODED)["mark"]
    reason = F.when(mark.isNull() | (mark != F.lit(_MARK)), F.lit(NOT_AVRO) if no_result is None else no_result)
    if paths := list(_text_fields(fields)):

        def is_broken(one: Column) -> Column:
            return any_of(~F.coalesce(F.is_valid_utf8(_field_at(one, path)), F.lit(True)) for path in paths)

        # In a lambda function: else Spark's optimizer compares each field that is named with each other one.
        reason = reason.when(F.exists(F.array(record), is_broken), NOT_UTF8)
    if why_not is not None:
        reason = F.coalesce(why_not, reason)
    columns: Mapping[str, Column] = {field.name: _in_order(record[field.name], field.dataType) for field in fields}
    return decoded.withColumns({**columns, REASON: F.when(value.isNull(), NO_VALUE).otherwise(reason)}).drop(
        _DECODED, _BODY
    )


def _in_order(value: Column, kind: DataType) -> Column:
    """The value with the entries of its maps by key. Avro's reader leaves them in an order of the records before."""
    match kind:
        case MapType():
            keys = F.array_sort(F.map_keys(value))
            return F.map_from_arrays(keys, F.transform(keys, lambda key: _in_order(value[key], kind.valueType)))
        case ArrayType() if _has_map(kind):
            return F.transform(value, lambda one: _in_order(one, kind.elementType))
        case StructType() if _has_map(kind):
            parts = (_in_order(value[field.name], field.dataType).alias(field.name) for field in kind)
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def _has_map(kind: DataType) -> bool:
    return '"map"' in kind.json()


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


NOT_FRAMED = "not in Confluent's framing: the first byte is not 0"
_FRAME = 5


def body_of(value: Column) -> Column:
    """The record behind the framing."""
    return F.substring(value, _FRAME + 1, 2**31 - 1)


def id_of(value: Column) -> Column:
    """The id of the schema, BIGINT; null where there is no framing."""
    return F.when(_is_framed(value), F.conv(F.hex(_id_bytes(value)), 16, 10).cast("bigint"))


def why_not_framed(value: Column, known: int | Collection[int] | None, subject: str = "") -> Column:
    """Why a value's framing cannot be used; null where it can.

    `known`: the id of the definition's schema, or those of a registry's `subject`; None: any id can be used.
    """
    why = F.when(~_is_framed(value) | (F.octet_length(value) < _FRAME), NOT_FRAMED)
    number = F.conv(F.hex(_id_bytes(value)), 16, 10)
    if isinstance(known, int):
        other = F.concat(F.lit("schema id "), number, F.lit(f", and the definition's schema has id {known}"))
        return why.when(_id_bytes(value) != F.lit(known.to_bytes(4, "big")), other)
    if known is not None:
        ids = [F.lit(one.to_bytes(4, "big")) for one in known]
        other = F.concat(F.lit("schema id "), number, F.lit(f", which is of no version of the subject {subject}"))
        return why.when(~_id_bytes(value).isin(*ids), other)
    return why


def _is_framed(value: Column) -> Column:
    return F.substring(value, 1, 1) == F.lit(b"\x00")


def _id_bytes(value: Column) -> Column:
    return F.substring(value, 2, _FRAME - 1)
