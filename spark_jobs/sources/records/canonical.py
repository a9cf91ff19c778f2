"""Canonical records: the history's columns, the decoded fields, the keys, and Rewindow's own columns.

| column | type | meaning |
| --- | --- | --- |
| `rw_partition`, `rw_offset` | INT, BIGINT | position in the log; null where the definition names no such column |
| `rw_arrival` | BIGINT | epoch ms; null likewise |
| `rw_event_time` | BIGINT | epoch ms; null if missing |
| `rw_micros` | BIGINT | only for Structured Streaming: the microseconds behind that millisecond, 0 to 999 |
| `rw_sequence` | BIGINT | only with `position.sequence` |
| `rw_marker`, `rw_stream` | BOOLEAN, STRING | only for `punctuated`, `interleaved` |
| `rw_id` | STRUCT | only with `deduplicate`: what duplicates share |
| `rw_erased` | BOOLEAN | only where a person was forgotten: the record is of the erased |
| `rw_reason` | STRING | null for a good record, else why it goes to quarantine |
| `rw_raw` | STRING | the undecoded text of the record, else all its columns as JSON |
| `rw_raw_bytes` | BINARY | only where the value is bytes: the undecoded value |

Where columns have the same name, a decoded field hides the history's column, and a key hides both. Expressions of the
position can use the history's columns; keys can use the decoded fields too; the event time, filters, marker and stream
can use all of them. Everything is evaluated lazily, and in the JVM.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType, DecimalType, IntegralType, NullType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.payload import EventTime
from spark_jobs.definition.position import Position
from spark_jobs.definition.yaml_tree import FieldPath
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.pins import ClockBound, PinnedSchemas, PinnedSnapshot
from spark_jobs.replay import aggregates
from spark_jobs.replay.columns import (
    ADMITTED,
    ARRIVAL,
    ERASED,
    EVENT_TIME,
    GAP,
    MARKER,
    MICROS,
    OFFSET,
    PARTITION,
    SEQUENCE,
    STREAM,
    end_offset,
)
from spark_jobs.replay.deduplication import ID
from spark_jobs.sources.erased import with_erased
from spark_jobs.sources.expressions import (
    Refused,
    analyse,
    conjuncts,
    expression_type,
    refuse,
    refuse_unequal,
    refuse_ungroupable,
    refuse_unpublishable,
)
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.attempts import FAILED, arguments, attempt, can_fail, evaluated, or_null
from spark_jobs.sources.records.decode import NO_VALUE, RAW, RAW_BYTES, REASON, UNREAD
from spark_jobs.sources.records.lookup import lookup_columns, with_lookup
from spark_jobs.sources.records.payload import payload_schema, with_payload
from spark_jobs.sources.records.texts import expressions_over_records, with_text_checked
from spark_jobs.sources.records.times import Unit, instant_refused, instants
from spark_jobs.spark.conditions import any_of

NO_POSITION = "no position"
MISSING_EVENT_TIME = "missing event time"
PENDING = "rw_pending"
WRONG_ARRIVAL = "rw_wrong_arrival"
_IS_AHEAD = "rw_is_ahead"
_AHEAD = "arrival ahead of records behind it in its partition"
_FIRST_ARRIVAL, _LAST_ARRIVAL = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 to 9999, epoch ms: outside of them there is no timestamp."""
_YEAR_9999 = 253_370_678_400_000, 253_402_387_200_000
"""The year 9999 of all zones, epoch ms."""
STANDS_FOR_NONE = (
    "event time in the year 9999, which stands for none: make it null in event_time.expression (nullif), or leave such "
    "records out by filter.before_watermark"
)
_TIME, _CONDITION, _ARGUMENT = "rw_time", "rw_condition", "rw_argument_"


def canonical(
    opened: OpenHistory, pipeline: Pipeline, frame: DataFrame | None = None, *, looked_up_by: DataFrame | None = None
) -> DataFrame:
    """The canonical records of an opened history: the good ones, and those that go to quarantine.

    `frame`: some of its rows, in place of all. `looked_up_by`: keys of the lookup's table; only records with one of
    them are returned.

    `filter.before_watermark` and `event_time.missing: drop` leave records out, as SQL's WHERE does. A record that
    cannot be decoded stays, unless a part of the filter that uses only the history's own columns rejects it.
    With `event_time.missing: fail`, a record without event time is good and its `rw_event_time` is null.
    A record that Spark's rules read with nulls (UNREAD) counts. One that has no event time therefore, or that the
    filter rejects since it is not true of a null, counts nowhere, and goes to quarantine with that reason.

    Raises:
        SourceError: A column does not exist.
        DefinitionError: Spark refuses an expression.
    """
    # A stitched history comes with positions and payload: its two parts have them in different columns.
    rows, schemas = opened.frame if frame is None else frame, opened.schemas
    if opened.inputs:  # those of a union are canonical records already
        return rows
    is_prepared = has_positions(rows)
    placed = _placed(rows, pipeline, opened.clocks)
    if counts_latest_arrival(pipeline):
        placed = running_maximum(placed)
    placed = _read_when_discovered(placed, pipeline.watermark.discovered)
    more = lookup_columns(placed.sparkSession, pipeline, opened.lookup)
    before, after = _split_filter(placed, pipeline, schemas, more)
    for condition in before:
        placed = _accepted(placed, condition)
    decoded = placed if is_prepared else with_payload(placed, pipeline, schemas)
    decoded = _with_text_checked(decoded, placed, pipeline, schemas)
    if pipeline.input_columns:
        decoded = with_keys(decoded, pipeline.input_columns, pipeline, "columns")
    looked_up = looked_up_in(decoded, pipeline, opened.lookup, looked_up_by)
    looked_up = with_text_checked(looked_up, expressions_over_records(pipeline), more)
    keyed = with_keys(looked_up, pipeline.keys, pipeline)
    if (text := pipeline.filter.before_watermark) is not None:
        _require_boolean(keyed, text, pipeline, ("filter", "before_watermark"))
    for condition in after:
        keyed = _accepted(keyed, condition)
    watermark = pipeline.watermark
    timed = with_event_time(keyed, pipeline.event_time, pipeline, marker=watermark.marker, stream=watermark.stream)
    records = _with_reason(_with_later_expressions(timed, pipeline), pipeline)
    return with_erased(records, opened.erasures, pipeline)


def good(records: DataFrame) -> DataFrame:
    """The good canonical records, without `rw_reason`, `rw_raw` and `rw_raw_bytes`."""
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
    """The canonical records that go to quarantine, with the columns of `QUARANTINE_SCHEMA`."""
    raw_bytes = F.col(RAW_BYTES) if RAW_BYTES in records.columns else F.lit(None).cast("binary")
    erased = F.col(ERASED) if ERASED in records.columns else F.lit(False)
    return records.where(F.col(REASON).isNotNull() & ~erased).select(
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.timestamp_millis(ARRIVAL).alias("arrival"),
        F.col(RAW).alias("raw"),
        F.col(REASON).alias("reason"),
        raw_bytes.alias("raw_bytes"),
    )


def cut_at(records: DataFrame, as_of: Mapping[int, int]) -> DataFrame:
    """The records below the end offset (exclusive) of their partition; a partition that `as_of` lacks is left out.

    Records without a position stay, because they go to quarantine. An empty `as_of` leaves nothing out.
    """
    if not as_of:
        return records
    below = F.col(OFFSET) < end_offset(as_of)
    return records.where(F.col(PARTITION).isNull() | F.col(OFFSET).isNull() | below)


def arrived_since(records: DataFrame, as_of: Mapping[int, int]) -> DataFrame:
    """The records at or above the end offset of their partition, and all records of partitions that `as_of` lacks."""
    return records.where(came_since(as_of))


def came_since(as_of: Mapping[int, int]) -> Column:
    """Whether a record is one of those that `arrived_since` returns."""
    end = end_offset(as_of)
    return (F.col(PARTITION).isNotNull() & end.isNull()) | (F.col(OFFSET) >= end)


def has_positions(frame: DataFrame) -> bool:
    """Whether the frame has its position columns already: a stitched history is opened with them."""
    return ARRIVAL in frame.columns


def logged(opened: OpenHistory, pipeline: Pipeline) -> DataFrame:
    """PARTITION, OFFSET and ARRIVAL of all records of a history that is no union, as the log has them.

    No filter is applied, and no running maximum.
    """
    return _placed(opened.frame, pipeline, opened.clocks).select(PARTITION, OFFSET, ARRIVAL).dropna()


def counts_latest_arrival(pipeline: Pipeline) -> bool:
    """Whether a record's arrival is the latest so far in its partition, of the pipeline or of an input of a union."""
    if pipeline.inputs:
        return any(counts_latest_arrival(one) for one in pipeline.inputs)
    position = pipeline.history.position
    return position.going_back == "running_maximum" and None not in (position.offset, position.arrival)


def _placed(rows: DataFrame, pipeline: Pipeline, clocks: Sequence[ClockBound]) -> DataFrame:
    position = pipeline.history.position
    placed = rows if has_positions(rows) else with_positions(rows, position, pipeline)
    return with_arrivals_bounded(placed, position, clocks)


def _read_when_discovered(placed: DataFrame, discovered: Mapping[int, int]) -> DataFrame:
    """Records that came to a partition before the job discovered it (epoch ms) arrive then."""
    at = F.lit(None).cast("bigint")
    for partition, time in discovered.items():
        at = F.when(F.col(PARTITION) == partition, F.lit(time).cast("bigint")).otherwise(at)
    arrival = F.when(F.col(ARRIVAL).isNotNull(), F.greatest(F.col(ARRIVAL), at))
    return placed.withColumn(ARRIVAL, arrival) if discovered else placed


def with_arrivals_bounded(placed: DataFrame, position: Position, clocks: Sequence[ClockBound] = ()) -> DataFrame:
    """Take arrivals that cannot be right away; WRONG_ARRIVAL says of such a record why it goes to quarantine.

    Without an arrival a record has no place in the log: it moves no watermark, and no end offset.
    """
    before = F.lit(_LAST_ARRIVAL if position.arrival_latest is None else position.arrival_latest)
    earliest = _FIRST_ARRIVAL if position.arrival_earliest is None else position.arrival_earliest
    arrival = F.col(ARRIVAL)
    latest = "10000-01-01T00:00:00Z" if position.arrival_latest is None else format_instant(position.arrival_latest)
    shown = F.when(
        (arrival >= F.lit(_FIRST_ARRIVAL)) & (arrival < F.lit(_LAST_ARRIVAL)),
        F.concat(F.lit(": "), F.date_format(F.timestamp_millis(arrival), "yyyy-MM-dd'T'HH:mm:ss'Z'")),
    ).otherwise(F.lit(""))
    is_wrong = (arrival < F.lit(earliest)) | (arrival >= before)
    reason = F.when(is_wrong, F.concat(F.lit(f"arrival out of [{format_instant(earliest)}, {latest})"), shown))
    if clocks:  # a column of its own: beside a new ARRIVAL, Spark would take that one in the lambda function
        placed = placed.withColumn(_IS_AHEAD, _is_ahead(clocks))
        reason = F.coalesce(reason, F.when(F.col(_IS_AHEAD), F.concat(F.lit(_AHEAD), shown)))
        is_wrong = is_wrong | F.col(_IS_AHEAD)
    return placed.withColumns({WRONG_ARRIVAL: reason, ARRIVAL: F.when(~is_wrong, arrival)}).drop(_IS_AHEAD)


def _is_ahead(clocks: Sequence[ClockBound]) -> Column:
    """Whether a record's arrival is ahead of records behind it."""
    listed = (
        (F.lit(partition), F.array(*(F.struct(*(F.lit(n).cast("bigint") for n in astuple(one)[1:])) for one in bounds)))
        for partition, bounds in itertools.groupby(sorted(clocks), key=lambda one: one.partition)
    )
    own = F.create_map(*itertools.chain(*listed))[F.col(PARTITION)]
    found = F.exists(own, lambda b: F.col(OFFSET).between(b["col1"], b["col2"] - 1) & (F.col(ARRIVAL) > b["col3"]))
    return F.coalesce(found, F.lit(False))


def with_positions(
    frame: DataFrame, position: Position, pipeline: Pipeline, path: FieldPath = ("history", "position")
) -> DataFrame:
    """Add the position columns: PARTITION, OFFSET, ARRIVAL and, where it is defined, SEQUENCE.

    Args:
        position: The expressions over the columns of `frame`. Its `going_back` is not applied: see `running_maximum`.
        pipeline: Used in errors only, for the file and line of a field.
        path: Where the definition has `position`, for errors.
    """
    if OFFSET in frame.columns:  # the files of a query come with theirs
        return frame.withColumn(ARRIVAL, F.lit(None).cast("bigint"))
    columns: dict[str, Column] = {
        PARTITION: _whole_number(frame, position.partition, "int", pipeline, (*path, "partition")),
        OFFSET: _whole_number(frame, position.offset, "bigint", pipeline, (*path, "offset")),
        ARRIVAL: F.lit(None).cast("bigint"),
    }
    columns[PARTITION] = F.when(columns[PARTITION] >= 0, columns[PARTITION])
    if position.arrival is not None:
        unit = position.arrival_unit
        kind = _of_unit(frame, position.arrival, unit, pipeline, (*path, "arrival"), "arrival_unit")
        columns[ARRIVAL] = instants(or_null(frame, position.arrival), kind, unit).milliseconds
    if position.sequence is not None:
        columns[SEQUENCE] = _whole_number(frame, position.sequence, "bigint", pipeline, (*path, "sequence"))
    return frame.withColumns(columns)


def running_maximum(placed: DataFrame) -> DataFrame:
    """Replace each record's arrival by the latest arrival so far in its partition, in offset order.

    It is taken over the whole log, before any filter, so all of the log is read and sorted.
    """
    log = Window.partitionBy(PARTITION).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = F.col(ARRIVAL).isNotNull() & F.col(PARTITION).isNotNull() & F.col(OFFSET).isNotNull()
    return placed.withColumn(ARRIVAL, F.when(known, F.max(F.when(known, F.col(ARRIVAL))).over(log)))


def looked_up_in(
    decoded: DataFrame, pipeline: Pipeline, pinned: PinnedSnapshot | None, only: DataFrame | None = None
) -> DataFrame:
    """The records with the columns of the lookup, if there is one. Its event time uses no column of the lookup."""
    if pipeline.lookup is None or pinned is None:
        return decoded
    at, time = F.lit(None).cast("bigint"), pipeline.event_time
    if pipeline.lookup.as_of == "event_time":
        kind = _of_unit(decoded, time.expression, time.unit, pipeline, ("event_time", "expression"))
        at = instants(or_null(decoded, time.expression), kind, time.unit).milliseconds
    return with_lookup(decoded, pipeline, pinned, at, only)


def with_keys(frame: DataFrame, keys: Mapping[str, str], pipeline: Pipeline, section: str = "keys") -> DataFrame:
    """Add the key columns, by name and expression. `pipeline` gives the file and line of a key in errors.

    `section`: where the definition has them, `keys` or the `columns` of an input. Keys are compared: no maps.
    """
    attempts = {}
    for name, text in keys.items():
        kind = expression_type(frame, text, pipeline, (section, name))
        ungroupable = refuse_ungroupable(kind) if section == "keys" else None
        if (refused := ungroupable or refuse_unpublishable(kind)) is not None:
            raise refuse(pipeline, (section, name), refused)
        attempts[name] = attempt(frame, f"{section.removesuffix('s')} `{name}`", text)
    return evaluated(frame, attempts)


def with_event_time(
    frame: DataFrame, event_time: EventTime, pipeline: Pipeline, *, marker: str | None = None, stream: str | None = None
) -> DataFrame:
    """Add EVENT_TIME, and MARKER and STREAM where their expressions are given.

    A column PENDING says why a record's event time cannot be used; `canonical` makes it part of REASON. With
    `missing: drop`, records without an event time are left out. `pipeline` gives the file and line in errors.
    """
    kind = _of_unit(frame, event_time.expression, event_time.unit, pipeline, ("event_time", "expression"))
    frame = evaluated(frame, {_TIME: attempt(frame, "event_time", event_time.expression)})
    times = instants(F.col(_TIME), kind, event_time.unit)
    earliest, latest = (format_instant(instant) for instant in (event_time.earliest, event_time.latest))
    is_absurd = (times.milliseconds < F.lit(event_time.earliest)) | (times.milliseconds >= F.lit(event_time.latest))
    why = F.when(times.milliseconds.between(*_YEAR_9999), STANDS_FOR_NONE).otherwise(
        f"event time out of [{earliest}, {latest})"
    )
    reason = F.coalesce(times.reason, F.when(is_absurd, why))
    if UNREAD in frame.columns and not takes_ids_without_event_time(pipeline):
        frame = frame.withColumn(REASON, F.coalesce(REASON, F.when(times.missing, F.col(UNREAD))))
    if event_time.missing == "quarantine":
        reason = F.when(times.missing, MISSING_EVENT_TIME).otherwise(reason)
    columns = {EVENT_TIME: times.milliseconds, PENDING: reason}
    if pipeline.counts_microseconds:
        columns[MICROS] = times.micros
    more = {}
    if marker is not None:
        _require_boolean(frame, marker, pipeline, ("watermark", "marker"))
        more[MARKER] = attempt(frame, "watermark.marker", marker)
        columns[MARKER] = F.coalesce(MARKER, F.lit(False))
    if stream is not None:
        expression_type(frame, stream, pipeline, ("watermark", "stream"))
        more[STREAM] = attempt(frame, "watermark.stream", stream)
        columns[STREAM] = F.col(STREAM).cast("string")
    frame = evaluated(frame, more)
    if drops_without_event_time(pipeline):
        frame = frame.where(_is_unusable(frame) | ~times.missing)
    return frame.withColumns(columns).drop(_TIME)


def takes_ids_without_event_time(pipeline: Pipeline) -> bool:
    """Whether a record without an event time, which is in no window, holds its id all the same (Spark rule 35)."""
    return pipeline.deduplicate is not None and pipeline.takes_ids_without_event_time


def drops_without_event_time(pipeline: Pipeline) -> bool:
    """Whether a record without an event time is left out before anything counts it."""
    return pipeline.event_time.missing == "drop" and not takes_ids_without_event_time(pipeline)


def _is_unusable(frame: DataFrame) -> Column:
    """Whether the record goes to quarantine, as far as is known yet."""
    return any_of(F.col(name).isNotNull() for name in (REASON, FAILED) if name in frame.columns)


def place_columns(position: Position) -> list[str]:
    """The columns that place a record in the log of a history with such a position."""
    columns = {"partition": PARTITION, "offset": OFFSET, "arrival": ARRIVAL, "sequence": SEQUENCE}
    return [column for name, column in columns.items() if getattr(position, name) is not None]


def _with_reason(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Complete REASON: the value cannot be decoded, the position is missing, or the event time cannot be used."""
    nulls = [F.col(column).isNull() for column in place_columns(pipeline.history.position)]
    reasons: list[Column | str] = [REASON, WRONG_ARRIVAL]
    if nulls:
        reasons.append(F.when(any_of(nulls), NO_POSITION))
    if FAILED in frame.columns:
        reasons.append(FAILED)
    return frame.withColumn(REASON, F.coalesce(*reasons, PENDING)).drop(PENDING, WRONG_ARRIVAL, FAILED, UNREAD)


def _with_later_expressions(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Try what the replay evaluates: the filter behind the watermark, the session gap, and the aggregates' arguments.

    A record on which one fails is quarantined. It is tried only where the replay would evaluate it.
    """
    admits: Column | None = None
    if (text := pipeline.filter.after_watermark) is not None:
        _require_boolean(records, text, pipeline, ("filter", "after_watermark"))
        one = attempt(records, "filter.after_watermark", text)
        admits = F.expr(text)
        if can_fail(records.sparkSession, one.tree):
            records = evaluated(records, {ADMITTED: one})
            admits = F.col(ADMITTED)
    records = _with_ids(records, pipeline, admits)
    _refuse_aggregates(records, pipeline)
    later = {}
    for number, (name, argument) in enumerate(arguments(records, aggregates_of(pipeline), admits)):
        if can_fail(records.sparkSession, argument.tree):
            later[f"{_ARGUMENT}{name}_{number}"] = argument
    gap = getattr(pipeline.window, "gap_expression", None)
    if gap is not None:
        expression_type(records, gap, pipeline, ("window", "gap_expression"))
        later[GAP] = replace(attempt(records, "window.gap_expression", gap), only_if=admits)
    tried_records = evaluated(records, later)
    if gap is not None:
        tried_records = _with_gap(tried_records, admits)
    return tried_records.drop(*(name for name in later if name != GAP))


def _refuse_aggregates(records: DataFrame, pipeline: Pipeline) -> None:
    """Raise DefinitionError for an aggregate that is no function of the window's records, or that no table holds."""
    spark = records.sparkSession
    shape = spark.createDataFrame([], records.schema)  # what the records are made by need not be analyzed with each
    for name, text in aggregates_of(pipeline).items():
        path = ("aggregates", name)
        try:
            found = aggregates.foreign(shape, text)
        except AnalysisException as error:
            raise refuse(pipeline, path, Refused(*aggregates.analyzer_message(shape, error))) from error
        if found is not None:
            raise refuse(pipeline, path, Refused(found.what, found.hint, found.column is not None))
        if (chance := next(aggregates.of_chance(spark, text), None)) is not None:
            raise refuse(pipeline, path, Refused(*chance))
        if (refused := refuse_unpublishable(shape.agg(F.expr(text)).schema[0].dataType)) is not None:
            raise refuse(pipeline, path, refused)


def _with_ids(records: DataFrame, pipeline: Pipeline, admits: Column | None) -> DataFrame:
    """Add ID where the live job drops duplicates. A record on which an expression fails is quarantined."""
    if (section := pipeline.deduplicate) is None:
        return records
    parts = {}
    for number, text in enumerate(section.by):
        path = ("deduplicate", "by", number)
        kind = expression_type(records, text, pipeline, path)
        if (refused := refuse_unequal(kind)) is not None:
            raise refuse(pipeline, path, refused)
        parts[f"{ID}_{number}"] = replace(attempt(records, "deduplicate.by", text), only_if=admits)
    known = evaluated(records, parts)
    return known.withColumn(ID, F.struct(*parts)).drop(*parts)


def _with_gap(records: DataFrame, admits: Column | None) -> DataFrame:
    """GAP in whole milliseconds. As Flink refuses a gap that is null or not above 0, its record is quarantined."""
    gap = F.col(GAP).try_cast("bigint")
    wrong = F.when(gap.isNull(), "the session gap is null").when(
        gap <= 0, F.concat(F.lit("the session gap is not above 0: "), gap.cast("string"))
    )
    if admits is not None:
        wrong = F.when(admits, wrong)
    reasons = [F.col(FAILED)] if FAILED in records.columns else []
    return records.withColumns({GAP: gap, FAILED: F.coalesce(*reasons, wrong)})


def _accepted(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the condition is true, and unusable ones, for which it cannot be evaluated."""
    one = attempt(frame, "filter.before_watermark", condition)
    if not can_fail(frame.sparkSession, one.tree) and REASON not in frame.columns and FAILED not in frame.columns:
        return frame.where(F.expr(condition))  # as it is written, so that Spark prunes by it
    # Spark prunes by this filter, too; what it cannot decide is kept for the next one.
    frame = frame.where(~or_null(frame, condition).eqNullSafe(F.lit(False)) | _is_unusable(frame))
    frame = evaluated(frame, {_CONDITION: one})
    keeps = F.coalesce(_CONDITION, F.lit(False))
    if UNREAD in frame.columns:
        frame = frame.withColumn(REASON, F.coalesce(REASON, F.when(F.col(_CONDITION).isNull(), F.col(UNREAD))))
    if REASON in frame.columns:
        keeps = keeps | (F.col(REASON).isNotNull() & (F.col(REASON) != NO_VALUE))
    if FAILED in frame.columns:
        keeps = keeps | F.col(FAILED).isNotNull()
    return frame.where(keeps).drop(_CONDITION)


def _with_text_checked(
    decoded: DataFrame, placed: DataFrame, pipeline: Pipeline, schemas: PinnedSchemas | None
) -> DataFrame:
    """The records with FAILED for text of the history's own columns that is no text, see `with_text_checked`."""
    if pipeline.history.has_lines:
        return decoded
    texts, own = expressions_over_records(pipeline), set(decoded.columns)
    if pipeline.value.format != "columns":
        texts.append(f"`{pipeline.value.column}`")
        if not has_positions(placed):
            own = set(placed.columns) - set(payload_schema(placed, pipeline, schemas).names)
    return with_text_checked(decoded, texts, own)


def _split_filter(
    placed: DataFrame, pipeline: Pipeline, schemas: PinnedSchemas | None, looked_up: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Split the filter into the parts that use only the history's own columns, and the others.

    The first are applied before the values are decoded: Spark prunes partitions by them and decodes fewer records.
    """
    text = pipeline.filter.before_watermark
    if text is None:
        return [], []
    hidden = {name.lower() for name, key in pipeline.keys.items() if key.strip("`").lower() != name.lower()}
    hidden |= {field.name.lower() for field in payload_schema(placed, pipeline, schemas)}
    hidden |= {name.lower() for name in looked_up}
    visible = placed.drop(*(name for name in placed.columns if name.lower() in hidden))
    before, after = [], []
    for part in conjuncts(placed, text):
        (after if isinstance(analyse(visible, part), Refused) else before).append(part)
    return before, after


def _whole_number(frame: DataFrame, text: str | None, target: str, pipeline: Pipeline, path: FieldPath) -> Column:
    """A position column of type `target`; null where there is no expression, and where it gives no whole number."""
    if text is None:
        return F.lit(None).cast(target)
    kind = expression_type(frame, text, pipeline, path)
    is_whole = isinstance(kind, (IntegralType, StringType, NullType))
    if not is_whole and not (isinstance(kind, DecimalType) and kind.scale == 0):
        what = f"is {kind.simpleString().upper()}, not a whole number"
        raise refuse(pipeline, path, Refused(what, "name an integer column, or write CAST(... AS BIGINT)"))
    return or_null(frame, text).try_cast(target)


def _of_unit(
    frame: DataFrame, text: str, unit: Unit, pipeline: Pipeline, path: FieldPath, field: str = "unit"
) -> DataType:
    """The type of an expression that gives an instant in this unit. Raises what `refuse` gives for another type."""
    kind = expression_type(frame, text, pipeline, path)
    if (refused := instant_refused(frame.sparkSession, text, kind, unit, field)) is not None:
        raise refuse(pipeline, path, refused)
    return kind


def _require_boolean(frame: DataFrame, text: str, pipeline: Pipeline, path: FieldPath) -> None:
    kind = expression_type(frame, text, pipeline, path)
    if kind.simpleString() not in ("boolean", "void"):
        what = f"is {kind.simpleString().upper()}, not a condition"
        raise refuse(pipeline, path, Refused(what, "write a comparison, such as `distance > 0`"))
