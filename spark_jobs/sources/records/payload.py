"""The decoded fields of a record's value: by the definition's format and schema, and out of an envelope.

In an envelope of change records the row behind a change becomes the record's fields. Debezium writes for each change
of a row `op` (c, u, d, or r for a row that was there before), the row `before` and `after` it, and where it was read.
The row after the change is the record; a delete has none.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.payload import Envelope, Reader, Value
from spark_jobs.pins import PinnedSchemas
from spark_jobs.sources.expressions import Refused, expression_type, refuse, refuse_schema
from spark_jobs.sources.files.csv_text import CsvRules
from spark_jobs.sources.records.decode import (
    JSON_AS_SPARK,
    NO_VALUE,
    NOT_UTF8,
    RAW,
    RAW_BYTES,
    REASON,
    decode,
    parse_schema,
)
from spark_jobs.sources.records.decode_avro import avro_fields, body_of, decode_avro, decode_by_writers, why_not_framed
from spark_jobs.spark.texts import as_text

TEXT_FIELD = "value"
"""The field of values that are plain text."""
_LINE_REASON = "rw_line_reason"
_LINE_RAW = "rw_line_raw"


def encoded_fields(spark: SparkSession, value: Value, schemas: PinnedSchemas | None = None) -> StructType:
    """The fields of the encoded value, those of its envelope too. Raises ValueError where the schema is wrong.

    `schemas`: those of the registry, where the definition names one.
    """
    if value.format == "text":
        return StructType().add(TEXT_FIELD, StringType())
    if value.format == "avro":
        return avro_fields(spark, schemas.reader if schemas is not None else value.ddl or "")
    row = parse_schema(spark, value.ddl or "")
    return row if value.envelope is None else enclosed(row, value.envelope)


def fields_of(spark: SparkSession, value: Value, schemas: PinnedSchemas | None = None) -> StructType:
    """The fields that expressions see of an encoded value. Raises ValueError where the schema is wrong."""
    whole = encoded_fields(spark, value, schemas)
    return whole if value.envelope is None else row_fields(whole, value.envelope)


def column_fields(spark: SparkSession, value: Value) -> StructType:
    """The columns of a history (format `columns`) whose types the schema gives. Raises ValueError where it is wrong."""
    whole = encoded_fields(spark, value)
    return (
        whole if value.envelope is None else StructType([field for field in whole if field.name in (AFTER, OPERATION)])
    )


def payload_schema(frame: DataFrame, pipeline: Pipeline, schemas: PinnedSchemas | None = None) -> StructType:
    """The fields of a record's value, as the definition gives them; `frame` has the history's columns."""
    value = pipeline.value
    try:
        if value.format != "columns":
            return fields_of(frame.sparkSession, value, schemas)
        return StructType() if value.envelope is None else row_fields(envelope_of(frame.schema), value.envelope)
    except ValueError as error:
        raise refuse_schema(pipeline, error) from error


def with_payload(frame: DataFrame, pipeline: Pipeline, schemas: PinnedSchemas | None = None) -> DataFrame:
    """Add the decoded fields, RAW and REASON (null where the value can be decoded)."""
    from_lines = RAW in frame.columns and REASON in frame.columns
    value = pipeline.value
    if value.format == "columns":
        if not from_lines:
            plain = [f"`{name}`" for name in frame.columns if not name.startswith("rw_")]
            raw = as_text(*plain) if plain else F.lit(None)
            frame = frame.withColumns({REASON: F.lit(None).cast("string"), RAW: raw.cast("string")})
        if value.envelope is None:
            return frame
        payload_schema(frame, pipeline)
        return opened(frame, envelope_of(frame.schema), value.envelope)
    kind = expression_type(frame, f"`{value.column}`", pipeline, ("value", "column"))
    if not isinstance(kind, (StringType, BinaryType)):
        what = f"column `{value.column}` is {kind.simpleString().upper()}, not text"
        raise refuse(pipeline, ("value", "column"), Refused(what, "name a STRING or BINARY column"))
    payload_schema(frame, pipeline, schemas)
    text = F.col(f"`{value.column}`").cast("string")
    if isinstance(kind, BinaryType):
        return _of_bytes(frame.withColumn(RAW_BYTES, F.col(f"`{value.column}`")), pipeline, schemas)
    if value.format == "avro" or value.is_framed:
        what = f"column `{value.column}` is text, and {'Avro' if value.format == 'avro' else 'the framing'} is bytes"
        raise refuse(pipeline, ("value", "column"), Refused(what, "name a BINARY column"))
    if not from_lines:
        return _of_text(frame.withColumn(RAW, text), F.col(RAW), value, pipeline.reader)
    line = frame.withColumnsRenamed({REASON: _LINE_REASON, RAW: _LINE_RAW}).withColumn(RAW, text)
    decoded = _of_text(line, F.col(RAW), value, pipeline.reader)
    both = {REASON: F.coalesce(_LINE_REASON, REASON), RAW: F.col(_LINE_RAW)}
    return decoded.withColumns(both).drop(_LINE_REASON, _LINE_RAW)


def decode_bytes(
    frame: DataFrame,
    content: Column,
    value: Value,
    schemas: PinnedSchemas | None = None,
    reader: Reader = Reader.FLINK,
) -> DataFrame:
    """Add the fields of `fields_of` to the frame, and REASON: why the bytes cannot be decoded; null where they can.

    `reader`: whose rules decide what is JSON, and about values of another type.
    """
    if value.format == "avro":
        whole = encoded_fields(frame.sparkSession, value, schemas)
        if schemas is not None:
            decoded = decode_by_writers(frame, content, schemas, whole)
        else:
            framed, number = value.is_framed, value.schema_id
            decoded = decode_avro(frame, content, value.ddl or "", whole, framed=framed, schema_id=number)
        return decoded if value.envelope is None else opened(decoded, whole, value.envelope)
    text = (body_of(content) if value.is_framed else content).cast("string")
    decoded = _of_text(frame, text, value, reader)
    broken = F.when(~F.is_valid_utf8(text), NOT_UTF8)
    if value.is_framed:
        known = value.schema_id if schemas is None else schemas.writers.keys()
        why_not = why_not_framed(content, known, "" if schemas is None else schemas.subject)
        broken = F.when(content.isNotNull(), F.coalesce(why_not, broken))
    return decoded.withColumn(REASON, F.coalesce(broken, REASON))


def _of_text(frame: DataFrame, text: Column, value: Value, reader: Reader) -> DataFrame:
    if value.format == "text":
        return frame.withColumns({REASON: F.when(text.isNull(), NO_VALUE), TEXT_FIELD: text})
    whole = encoded_fields(frame.sparkSession, value)
    if value.format == "csv":
        if reader is Reader.SPARK:
            return decode(frame, text, "csv", whole, reader=reader)
        read = decode(frame, text, "csv", whole, {"escape": '"'})
        return read.withColumn(REASON, F.coalesce(CsvRules().why_wrong(text), REASON))
    decoded = decode(frame, text, "json", whole, JSON_AS_SPARK if reader is Reader.SPARK else None, reader=reader)
    return decoded if value.envelope is None else opened(decoded, whole, value.envelope)


def _of_bytes(frame: DataFrame, pipeline: Pipeline, schemas: PinnedSchemas | None) -> DataFrame:
    """Add the decoded fields, REASON and RAW to a frame whose RAW_BYTES are the value. Null values: by `tombstones`."""
    tombstones = pipeline.history.tombstones
    if tombstones == "drop":
        frame = frame.where(F.col(RAW_BYTES).isNotNull())
    body = body_of(F.col(RAW_BYTES)) if pipeline.value.is_framed else F.col(RAW_BYTES)
    raw = F.make_valid_utf8(body.cast("string"))
    if pipeline.value.format == "avro":
        raw = F.lit(None).cast("string")
    decoded = decode_bytes(frame, F.col(RAW_BYTES), pipeline.value, schemas, pipeline.reader).withColumn(RAW, raw)
    if tombstones == "keep":
        decoded = decoded.withColumn(REASON, F.when(F.col(RAW_BYTES).isNotNull(), F.col(REASON)))
    return decoded


NO_ENVELOPE = "not in Debezium's envelope: it has no `op`"
A_DELETE = "a delete, which has no row after it"
NO_ROW_BEFORE = "a delete without the row before it"

AFTER, OPERATION = "after", "op"
_BEFORE, _PAYLOAD = "before", "payload"
_FIELDS = (_BEFORE, AFTER, OPERATION, _PAYLOAD, "ts_ms", "source", "transaction")
_DELETE, _WRITES = "d", ("c", "u", "r")
_SOURCE = StructType(
    [
        StructField("ts_ms", LongType()),
        StructField("db", StringType()),
        StructField("schema", StringType()),
        StructField("table", StringType()),
        StructField("snapshot", StringType()),
    ]
)
"""What every connector says of where a change was read."""


def enclosed(row: StructType, envelope: Envelope) -> StructType:
    """The fields of JSON that holds changes of such rows."""
    fields = [StructField(AFTER, row), StructField(OPERATION, StringType())]
    if envelope.deletes == "keep":
        fields.insert(0, StructField(_BEFORE, row))
    fields += [StructField("ts_ms", LongType()), StructField("source", _SOURCE)]
    whole = StructType(fields)
    return StructType([StructField(_PAYLOAD, whole)]) if envelope.schema_include else whole


def envelope_of(columns: StructType) -> StructType:
    """The columns of a history that are an envelope's fields."""
    return StructType([field for field in columns if field.name in _FIELDS])


def row_fields(whole: StructType, envelope: Envelope) -> StructType:
    """The fields that expressions see: those of the row, and those of the envelope that have other names.

    Raises ValueError where the fields are not those of an envelope.
    """
    change = whole
    if envelope.schema_include:
        change = _struct(whole, _PAYLOAD)
    row = _struct(change, AFTER)
    needed = [OPERATION, *([_BEFORE] if envelope.deletes == "keep" else [])]
    if missing := [name for name in needed if name not in change.names]:
        raise ValueError(f"it has no field `{missing[0]}`, as Debezium's envelope has")
    if envelope.deletes == "keep" and _struct(change, _BEFORE).simpleString() != row.simpleString():
        raise ValueError("`before` and `after` have different types")
    return StructType([*row.fields, *_of_envelope(change, row)])


def opened(frame: DataFrame, whole: StructType, envelope: Envelope) -> DataFrame:
    """Replace the decoded fields of an envelope by those of `row_fields`, and complete REASON.

    `whole`: the decoded fields, which are columns of the frame. With `deletes: drop`, deletes are left out.
    """
    change, row = whole, row_fields(whole, envelope)

    def part(name: str) -> Column:
        return F.col(_PAYLOAD)[name] if envelope.schema_include else F.col(name)

    if envelope.schema_include:
        change = _struct(whole, _PAYLOAD)
    after = _struct(change, AFTER)
    operation = part(OPERATION)
    is_delete = operation == _DELETE
    image, of_delete = part(AFTER), F.lit(A_DELETE)
    if envelope.deletes == "keep":
        image = F.when(is_delete, part(_BEFORE)).otherwise(image)
        of_delete = F.when(image.isNull(), NO_ROW_BEFORE)
    wrong = (
        F.when(operation.isNull(), NO_ENVELOPE)
        .when(is_delete, of_delete)
        .when(~operation.isin(*_WRITES), F.concat(F.lit("no change of a row: `op` is "), operation))
        .when(image.isNull(), F.concat(F.lit("a change without the row after it: `op` is "), operation))
    )
    if envelope.deletes == "drop":
        frame = frame.where(~(is_delete & F.col(REASON).isNull()) | is_delete.isNull())
    columns = {field.name: image[field.name] for field in after}
    columns |= {field.name: part(field.name) for field in _of_envelope(change, after)}
    columns[REASON] = F.coalesce(REASON, wrong)
    parts = (_PAYLOAD,) if envelope.schema_include else (AFTER, _BEFORE)
    return frame.withColumns(columns).drop(*(name for name in parts if name not in row.names))


def _of_envelope(change: StructType, row: StructType) -> list[StructField]:
    """The fields that the envelope has beside the rows."""
    known = {name.lower() for name in row.names}
    return [field for field in change if field.name not in (AFTER, _BEFORE) and field.name.lower() not in known]


def _struct(fields: StructType, name: str) -> StructType:
    found = fields[name].dataType if name in fields.names else None
    if not isinstance(found, StructType):
        raise ValueError(f"it has no field `{name}` with a row, as Debezium's envelope has")
    return found
