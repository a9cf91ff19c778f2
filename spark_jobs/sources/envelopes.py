"""Envelopes of change records: the row behind a change becomes the record's fields.

Debezium writes for each change of a row `op` (c, u, d, or r for a row that was there before), the row `before` and
`after` it, and where it was read. The row after the change is the record; a delete has none.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_jobs.definition.payload import Envelope
from spark_jobs.sources.decode import REASON

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
    """Those columns of a history that are an envelope's fields."""
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
