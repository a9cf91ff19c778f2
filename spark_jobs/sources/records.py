"""Canonical records: the history's columns, the decoded fields, the keys, and Rewindow's own columns beside them.

| column | type | meaning |
| --- | --- | --- |
| `rw_partition`, `rw_offset` | INT, BIGINT | place in the log; null where the definition names no such column |
| `rw_arrival` | BIGINT | epoch ms; null likewise |
| `rw_event_time` | BIGINT | epoch ms; null if missing |
| `rw_sequence` | BIGINT | only with `position.sequence` |
| `rw_marker`, `rw_stream` | BOOLEAN, STRING | only for `punctuated`, `interleaved` |
| `rw_reason` | STRING | null for a good record, else why it goes to quarantine |
| `rw_raw` | STRING | the text that held the record, else all its columns as JSON |
| `rw_raw_bytes` | BINARY | only where the value is bytes: exactly those |

Of columns with the same name, a decoded field hides the history's column, and a key hides both. The position sees the
history's columns; keys see the decoded fields too; the event time, filters, marker and stream see all of them.
Everything is evaluated in the JVM, and lazily.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import BinaryType, DataType, DecimalType, IntegralType, NullType, StringType, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, MARKER, OFFSET, PARTITION, SEQUENCE, STREAM, end_offset
from spark_jobs.sources.decode import NO_VALUE, RAW, RAW_BYTES, REASON, decode, parse_schema
from spark_jobs.sources.decode_avro import avro_fields, decode_avro
from spark_jobs.sources.expressions import Refused, analyse, conjuncts, expression_type, refuse, refuse_schema
from spark_jobs.sources.times import instants, unit_refused

NO_POSITION = "no position"
MISSING_EVENT_TIME = "missing event time"
NOT_UTF8 = "not valid UTF-8"
TEXT_FIELD = "value"
"""The one field of values that are plain text."""
_PENDING = "rw_pending"
_LINE_REASON = "rw_line_reason"
_LINE_RAW = "rw_line_raw"


def canonical(history_frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The records of an opened history, good ones and those for quarantine.

    `filter.before_watermark` and `event_time.missing: drop` leave records out, as SQL's WHERE does; a record that could
    not be decoded stays, unless a part of the filter that reads only the history's own columns rejects it.
    Where `event_time.missing` is `fail`, a record without event time is good and its `rw_event_time` null.

    Raises SourceError for a column that is not there, DefinitionError for an expression that Spark refuses.
    """
    # A stitched history comes with position and payload, which its two parts have in different ways.
    is_ready = ARRIVAL in history_frame.columns
    placed = history_frame if is_ready else with_positions(history_frame, pipeline)
    before, after = _split_filter(placed, pipeline)
    for condition in before:
        placed = _accepted(placed, condition)
    keyed = with_keys(placed if is_ready else with_payload(placed, pipeline), pipeline)
    if (text := pipeline.filter.before_watermark) is not None:
        _boolean(keyed, text, pipeline, ("filter", "before_watermark"))
    for condition in after:
        keyed = _accepted(keyed, condition)
    return _with_reason(with_event_time(keyed, pipeline), pipeline)


def good(records: DataFrame) -> DataFrame:
    """The canonical records that can be used, without `rw_reason` and `rw_raw`."""
    return records.where(F.col(REASON).isNull()).drop(REASON, RAW, RAW_BYTES)


QUARANTINE_SCHEMA = t.StructType(
    [
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("arrival", t.TimestampType()),
        t.StructField("raw", t.StringType()),
        t.StructField("reason", t.StringType()),
        t.StructField("raw_bytes", t.BinaryType()),
    ]
)
"""The columns of quarantined records."""


def quarantined(records: DataFrame) -> DataFrame:
    """The rest, in the columns of `QUARANTINE_SCHEMA`."""
    raw_bytes = F.col(RAW_BYTES) if RAW_BYTES in records.columns else F.lit(None).cast("binary")
    return records.where(F.col(REASON).isNotNull()).select(
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.timestamp_millis(ARRIVAL).alias("arrival"),
        F.col(RAW).alias("raw"),
        F.col(REASON).alias("reason"),
        raw_bytes.alias("raw_bytes"),
    )


def cut_at(records: DataFrame, as_of: Mapping[int, int]) -> DataFrame:
    """Records below the end offset (exclusive) of their partition; a partition that `as_of` lacks is left out.

    Records without a position stay, to be quarantined. An empty `as_of` cuts nothing.
    """
    if not as_of:
        return records
    below = F.col(OFFSET) < end_offset(as_of)
    return records.where(F.col(PARTITION).isNull() | F.col(OFFSET).isNull() | below)


def arrived_since(records: DataFrame, as_of: Mapping[int, int]) -> DataFrame:
    """Records at or above the end offset of their partition, and those of partitions that are not in the vector."""
    end = end_offset(as_of)
    return records.where((F.col(PARTITION).isNotNull() & end.isNull()) | (F.col(OFFSET) >= end))


def with_positions(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """`frame` with its position columns; with `going_back: running_maximum` the arrival is already that.

    The running maximum is over the whole log of the partition in offset order, before any filter, so it needs a sort
    of all of it and reads all of it.
    """
    position = pipeline.history.position
    columns: dict[str, Column] = {
        PARTITION: _whole_number(frame, pipeline, "partition", "int"),
        OFFSET: _whole_number(frame, pipeline, "offset", "bigint"),
        ARRIVAL: F.lit(None).cast("bigint"),
    }
    if position.arrival is not None:
        path = ("history", "position", "arrival")
        kind = _of_unit(frame, position.arrival, position.arrival_unit, pipeline, path)
        columns[ARRIVAL] = instants(F.expr(position.arrival), kind, position.arrival_unit).milliseconds
    if position.sequence is not None:
        columns[SEQUENCE] = _whole_number(frame, pipeline, "sequence", "bigint")
    placed = frame.withColumns(columns)
    if position.going_back == "running_maximum" and None not in (position.offset, position.arrival):
        return running_maximum(placed)
    return placed


def running_maximum(placed: DataFrame) -> DataFrame:
    """Each record's arrival as the latest one so far in its partition, in offset order."""
    log = Window.partitionBy(PARTITION).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = F.col(ARRIVAL).isNotNull() & F.col(PARTITION).isNotNull() & F.col(OFFSET).isNotNull()
    return placed.withColumn(ARRIVAL, F.when(known, F.max(F.when(known, F.col(ARRIVAL))).over(log)))


def with_payload(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """`frame` with the decoded fields, RAW and REASON (null where all could be decoded)."""
    from_lines = RAW in frame.columns and REASON in frame.columns
    value = pipeline.value
    if value.format == "columns":
        if from_lines:
            return frame
        plain = [F.col(f"`{name}`") for name in frame.columns if not name.startswith("rw_")]
        raw = F.to_json(F.struct(*plain), {"ignoreNullFields": "false"}) if plain else F.lit(None)
        return frame.withColumns({REASON: F.lit(None).cast("string"), RAW: raw.cast("string")})
    kind = expression_type(frame, f"`{value.column}`", pipeline, ("value", "column"))
    if not isinstance(kind, (StringType, BinaryType)):
        what = f"column `{value.column}` is {kind.simpleString().upper()}, not text"
        raise refuse(pipeline, ("value", "column"), Refused(what, "name a STRING or BINARY column"))
    schema = payload_schema(frame, pipeline)
    text = F.col(f"`{value.column}`").cast("string")
    if isinstance(kind, BinaryType):
        return _with_bytes_decoded(frame.withColumn(RAW_BYTES, F.col(f"`{value.column}`")), pipeline, schema)
    if value.format == "avro":
        what = f"column `{value.column}` is text, and Avro is bytes"
        raise refuse(pipeline, ("value", "column"), Refused(what, "name a BINARY column"))
    if not from_lines:
        return _decoded(frame.withColumn(RAW, text), pipeline, schema)
    kept = frame.withColumnsRenamed({REASON: _LINE_REASON, RAW: _LINE_RAW}).withColumn(RAW, text)
    decoded = _decoded(kept, pipeline, schema)
    both = {REASON: F.coalesce(_LINE_REASON, REASON), RAW: F.col(_LINE_RAW)}
    return decoded.withColumns(both).drop(_LINE_REASON, _LINE_RAW)


def _decoded(frame: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    """`frame`, whose RAW holds the text, with the decoded fields and REASON."""
    if pipeline.value.format == "text":
        return frame.withColumns({REASON: F.when(F.col(RAW).isNull(), NO_VALUE), TEXT_FIELD: F.col(RAW)})
    return decode(frame, F.col(RAW), pipeline.value.format, schema)


def _with_bytes_decoded(frame: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    """`frame`, whose RAW_BYTES hold the value, with the decoded fields, REASON and RAW; tombstones by policy."""
    tombstones = getattr(pipeline.history, "tombstones", "quarantine")
    if tombstones == "drop":
        frame = frame.where(F.col(RAW_BYTES).isNotNull())
    value = pipeline.value
    if value.format == "avro":
        framed = value.framing == "confluent"
        decoded = decode_avro(frame, F.col(RAW_BYTES), value.ddl or "", schema, framed=framed)
        decoded = decoded.withColumn(RAW, F.lit(None).cast("string"))
    else:
        decoded = _decoded(frame.withColumn(RAW, F.col(RAW_BYTES).cast("string")), pipeline, schema)
        broken = F.when(~F.is_valid_utf8(RAW), NOT_UTF8)
        decoded = decoded.withColumns({REASON: F.coalesce(broken, REASON), RAW: F.make_valid_utf8(RAW)})
    if tombstones == "keep":
        decoded = decoded.withColumn(REASON, F.when(F.col(RAW_BYTES).isNotNull(), F.col(REASON)))
    return decoded


def with_keys(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """`frame` with the key columns."""
    for name, text in pipeline.keys.items():
        expression_type(frame, text, pipeline, ("keys", name))
    return frame.withColumns({name: F.expr(text) for name, text in pipeline.keys.items()}) if pipeline.keys else frame


def with_event_time(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """`frame` with the event time, marker and stream, and its reasons added to REASON."""
    event_time, watermark = pipeline.event_time, pipeline.watermark
    kind = _of_unit(frame, event_time.expression, event_time.unit, pipeline, ("event_time", "expression"))
    times = instants(F.expr(event_time.expression), kind, event_time.unit)
    earliest, latest = (format_instant(instant) for instant in (event_time.earliest, event_time.latest))
    is_absurd = (times.milliseconds < F.lit(event_time.earliest)) | (times.milliseconds >= F.lit(event_time.latest))
    reason = F.coalesce(times.reason, F.when(is_absurd, f"event time out of [{earliest}, {latest})"))
    if event_time.missing == "quarantine":
        reason = F.when(times.missing, MISSING_EVENT_TIME).otherwise(reason)
    columns = {EVENT_TIME: times.milliseconds, _PENDING: reason}
    if watermark.marker is not None:
        _boolean(frame, watermark.marker, pipeline, ("watermark", "marker"))
        columns[MARKER] = F.coalesce(F.expr(watermark.marker), F.lit(False))
    if watermark.stream is not None:
        expression_type(frame, watermark.stream, pipeline, ("watermark", "stream"))
        columns[STREAM] = F.expr(watermark.stream).cast("string")
    if event_time.missing == "drop":
        frame = frame.where(F.col(REASON).isNotNull() | ~times.missing)
    return frame.withColumns(columns)


def _with_reason(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    position = pipeline.history.position
    needed = {"partition": PARTITION, "offset": OFFSET, "arrival": ARRIVAL, "sequence": SEQUENCE}
    absent = [F.col(column).isNull() for name, column in needed.items() if getattr(position, name) is not None]
    nowhere = F.lit(False)
    for condition in absent:
        nowhere = nowhere | condition
    reason = F.coalesce(REASON, F.when(nowhere, NO_POSITION), _PENDING) if absent else F.coalesce(REASON, _PENDING)
    return frame.withColumn(REASON, reason).drop(_PENDING)


def _accepted(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the condition is true, and those of which it cannot be said because they are malformed."""
    if REASON not in frame.columns:
        return frame.where(F.expr(condition))
    malformed = F.col(REASON).isNotNull() & (F.col(REASON) != NO_VALUE)
    return frame.where(F.coalesce(F.expr(condition), F.lit(False)) | malformed)


def _split_filter(placed: DataFrame, pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """The filter's parts that read only the history's own columns, and the others.

    The former come before the decoding: so Spark prunes partitions by them and decodes only what they let pass.
    """
    text = pipeline.filter.before_watermark
    if text is None:
        return [], []
    hidden = {name.lower() for name, key in pipeline.keys.items() if key.strip("`").lower() != name.lower()}
    if pipeline.value.format != "columns":
        hidden |= {field.name.lower() for field in payload_schema(placed, pipeline)}
    visible = placed.drop(*(name for name in placed.columns if name.lower() in hidden))
    before, after = [], []
    for part in conjuncts(placed, text):
        (after if isinstance(analyse(visible, part), Refused) else before).append(part)
    return before, after


def payload_schema(frame: DataFrame, pipeline: Pipeline) -> StructType:
    """The fields of a record's value, as the definition gives them."""
    if pipeline.value.format == "text":
        return StructType().add(TEXT_FIELD, StringType())
    schema_of = avro_fields if pipeline.value.format == "avro" else parse_schema
    try:
        return schema_of(frame.sparkSession, pipeline.value.ddl or "")
    except ValueError as error:
        raise refuse_schema(pipeline, error) from error


def _whole_number(frame: DataFrame, pipeline: Pipeline, name: str, target: str) -> Column:
    """A position column; null where it is no whole number, and for a negative partition."""
    text = getattr(pipeline.history.position, name)
    if text is None:
        return F.lit(None).cast(target)
    path = ("history", "position", name)
    kind = expression_type(frame, text, pipeline, path)
    is_whole = isinstance(kind, (IntegralType, StringType, NullType))
    if not is_whole and not (isinstance(kind, DecimalType) and kind.scale == 0):
        what = f"is {kind.simpleString().upper()}, not a whole number"
        raise refuse(pipeline, path, Refused(what, "name an integer column, or write CAST(... AS BIGINT)"))
    number = F.expr(text).try_cast(target)
    return F.when(number >= 0, number) if name == "partition" else number


def _of_unit(frame: DataFrame, text: str, unit: str, pipeline: Pipeline, path: tuple[str, ...]) -> DataType:
    kind = expression_type(frame, text, pipeline, path)
    if (refused := unit_refused(kind, unit)) is not None:
        raise refuse(pipeline, path, refused)
    return kind


def _boolean(frame: DataFrame, text: str, pipeline: Pipeline, path: tuple[str, ...]) -> None:
    kind = expression_type(frame, text, pipeline, path)
    if kind.simpleString() not in ("boolean", "void"):
        what = f"is {kind.simpleString().upper()}, not a condition"
        raise refuse(pipeline, path, Refused(what, "write a comparison, such as `distance > 0`"))
