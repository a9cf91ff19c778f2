"""Reads what the live job emitted as canonical rows: one for each key and window.

| column | type | meaning |
| --- | --- | --- |
| the keys | as in the history | |
| `window_start`, `window_end` | BIGINT | epoch ms, half-open |
| `<aggregate>__emitted` | as emitted | one for each aggregate that the job emitted |
| `emitted_rows` | INT | how many rows there are for this window |
| `emitted_pane`, `emitted_at` | BIGINT | of the row that counts (epoch ms) |
| `first_emitted_at` | BIGINT | of the first row (epoch ms) |
| `last_offsets` | MAP<INT, BIGINT> | evidence: last offset by partition in the row's contents |
| `ambiguous` | BOOLEAN | several rows, and nothing says which one is the last; or one pane twice |
| `again` | BOOLEAN | emitted before a restart of the job and again after it |

In addition the `hashed_columns` of `spark_jobs.comparison.join_keys`, by which the rows are partitioned and sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, TimestampNTZType

from spark_jobs.comparison.emitted_pruning import emitted_since, of_windows, starts_in
from spark_jobs.comparison.emitted_source import OpenRows, open_rows
from spark_jobs.comparison.emitted_topic import (
    AT_OFFSET,
    AT_PARTITION,
    KEY_BYTES,
    PLACED,
    TOMBSTONE,
    UNREADABLE,
    VALUE_BYTES,
    behind,
    placed_in,
)
from spark_jobs.comparison.join_keys import hashed_columns, with_window_hash
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import Deployed
from spark_jobs.definition.live import Live, TimeUnit, WindowColumns
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.assign import END, START, end_after, start_before
from spark_jobs.replay.columns import OFFSET, PARTITION, is_within
from spark_jobs.replay.defined_windows import fields_without_effect, windows_of
from spark_jobs.sources.erased import erasures_of, without_erased
from spark_jobs.sources.expressions import Refused, expression_type, refuse
from spark_jobs.sources.records.attempts import FAILED, attempt, evaluated, or_null
from spark_jobs.sources.records.times import instants, unit_refused
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.gateway import tried

ROWS, PANE, AT, FIRST_AT = "emitted_rows", "emitted_pane", "emitted_at", "first_emitted_at"
OFFSETS, AMBIGUOUS, AGAIN = "last_offsets", "ambiguous", "again"
LATE_OUTPUT = "rw_late_output"
_ORDER, _DELETED, _SCATTERED = "rw_order", "rw_deleted", "rw_scattered"
_WHY, _UNKNOWN = "rw_why", "rw_unknown_operation"

NO_BOUNDS = "no readable window bounds"
"""Why a row that can be decoded cannot be read: it is of a window that nobody knows."""
_KEPT = ("+I", "I", "INSERT", "C", "CREATE", "R", "+U", "U", "UPDATE", "UPDATE_AFTER")
_RETRACTED = ("-U", "UB", "UPDATE_BEFORE")
_DELETES = ("-D", "D", "DELETE")
_KNOWN = (*_KEPT, *_RETRACTED, *_DELETES)
_FARTHEST = 9 * 10**15
"""Milliseconds from 1970, in the year 287,000; Spark's timestamps end in 294,000."""
_ZONED = r"(Z|[+-]\d{2}(:?\d{2})?)\s*$"


def emitted_name(aggregate: str) -> str:
    """The column of the value that the live job emitted for an aggregate."""
    return f"{aggregate}__emitted"


@dataclass(frozen=True)
class Emitted:
    """The emitted windows.

    `rows` has the columns that the module lists; `values` names the aggregates that the job emitted, in their order.
    `emissions` has a row for each one that the job emitted about these windows: `window_end`, `emitted_at`.
    `unreadable` counts rows that cannot be decoded or have no readable bounds, `outside` rows outside the range;
    neither are in `rows`. `notes` are sentences for the report about these rows, and about missing parts of a topic.
    """

    rows: DataFrame
    emissions: DataFrame
    values: tuple[str, ...]
    has_emission_time: bool
    description: str
    unreadable: int
    outside: int
    notes: tuple[str, ...]


class EmittedRows:
    """What the live job emitted, opened once: a topic's offsets are fixed, and its rows are decoded once.

    Args:
        types: the types of the keys in the history.
        cached: caches the rows of a topic, and those of chosen windows.

    Raises:
        DefinitionError: the section `live:` is missing or wrong.
        SourceError: the emitted rows cannot be read.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, types: Mapping[str, DataType], cached: CachedFrames | None = None
    ) -> None:
        self.live = live_of(pipeline)
        self.pipeline = pipeline
        self.opened = open_rows(spark, self.live.source, pipeline)
        self._types = types
        self._values = value_columns(self.opened.frame, pipeline)
        self._cached = cached
        self._decoded: DataFrame | None = None
        self._erasures = erasures_of(spark, pipeline)

    def keep(self) -> None:
        """Append the rows that only the topic has to `<table>__emitted`; from now on they are read from there.

        Rows of files and tables stay where they are. Raises CatalogError where the table cannot be written.
        """
        topic = self.opened.topic
        if topic is not None and topic.ahead():
            kept = topic.keep(lambda rows: _bounds(rows, self.pipeline, self.live)[0])
            self.opened, self._decoded = replace(self.opened, frame=kept.decoded(), topic=kept), None

    def sample(self, count: int, deployed: Deployed | None = None) -> DataFrame:
        """Up to `count` rows about windows, the first that Spark finds, of the time of a deployment.

        Columns: the keys, `window_start`, `window_end`, `<aggregate>__emitted`, `emitted_pane`, `emitted_at`,
        `last_offsets`, and `why`: why a row cannot be read.
        """
        names = (*self.pipeline.keys, START, END, *map(emitted_name, self._values), PANE, AT, OFFSETS)
        rows = self._whole()
        if deployed is not None and deployed.start is not None:
            rows = rows.where(F.col(_WHY).isNotNull() | (F.col(START) >= F.lit(deployed.start)))
        if deployed is not None and deployed.end is not None:
            rows = rows.where(F.col(_WHY).isNotNull() | (F.col(START) < F.lit(deployed.end)))
        return rows.limit(count).select(*(f"`{name}`" for name in names), F.col(_WHY).alias("why"))

    @property
    def values(self) -> tuple[str, ...]:
        """The aggregates that the job emitted."""
        return tuple(self._values)

    def windows(self, span: TimeRange) -> Emitted:
        """The windows with a start in `span`. Raises SourceError: an unknown operation, or not one row can be read."""
        canonical = self._whole()
        unreadable, outside, notes = _survey(canonical, self.pipeline, span)
        inside = canonical.where(is_within(F.col(START), span))
        return self._emitted(inside, unreadable, outside, notes)

    def chosen(self, spans: Sequence[TimeRange], older: Sequence[TimeRange], pairs: DataFrame | None) -> Emitted:
        """The windows with a start in `spans`, and those of `pairs`, which start in `older`. Reads no other rows.

        Rows that cannot be read are left out and not counted. The rows are cached: they are few.
        """
        canonical = self._starting_in((*older, *spans))
        return self._emitted(self._persisted(of_windows(canonical, tuple(self.pipeline.keys), spans, pairs)), 0, 0, ())

    def changed(self, within: TimeRange, since: int | None, offsets: Mapping[int, int] | None) -> DataFrame | None:
        """The windows that start in `within` and have rows that came since a comparison; None: nothing shows it.

        `offsets` (of a topic) and `since` (epoch ms of `emitted_at`) say what the comparison has seen. Columns: the
        keys, `window_start`, `window_end` (epoch ms), distinct.
        """
        if self.opened.topic is not None and offsets:
            rows = self._of_topic(behind(offsets)).where(behind(offsets))
        elif self.live.emitted_at is not None and since is not None:
            rows = self._canonical(emitted_since(self.opened.frame, self.live, since)).where(F.col(AT) >= F.lit(since))
        else:
            return None
        inside = is_within(F.col(START), within)
        older = rows.where(F.col(_WHY).isNull() & inside)
        return older.select(*self.pipeline.keys, START, END).distinct()

    def records(self) -> DataFrame:
        """The records of a topic that can be read: keys, `window_start`, `window_end` (epoch ms), `rw_at_partition`,
        `rw_at_offset`, `rw_key_bytes`, `rw_value_bytes`."""
        return self._with_bytes(self.opened.frame).select(*self._of_records)

    def last_records(self, span: TimeRange) -> DataFrame:
        """The record in the topic that counts of each window that starts in `span`, in the columns of `records`.

        It is the one that `last_rows` takes, so that a correction is made of the row that was compared.
        """
        rows = self._with_bytes(self.opened.frame.where(placed_in((span,))))
        return _ranked(rows, tuple(self.pipeline.keys), in_topic=True).where("rw_rank = 1").select(*self._of_records)

    def without_bounds(self) -> DataFrame:
        """The records of a topic that can be decoded, and are of a window that nobody knows: `rw_at_partition`,
        `rw_at_offset`, `rw_key_bytes`."""
        unplaced = self.opened.frame.where(F.col(PLACED).isNull())
        rows = canonical_rows(self.opened, unplaced, self.pipeline, self._values, self._types, (KEY_BYTES,))
        return rows.where(F.col(_WHY) == NO_BOUNDS).select(AT_PARTITION, AT_OFFSET, KEY_BYTES)

    @property
    def _of_records(self) -> tuple[str, ...]:
        keys = (f"`{k}`" for k in self.pipeline.keys)
        return (*keys, START, END, AT_OFFSET, AT_PARTITION, KEY_BYTES, VALUE_BYTES)

    def _with_bytes(self, frame: DataFrame) -> DataFrame:
        """The canonical rows that can be read, with the bytes of their records."""
        rows = canonical_rows(self.opened, frame, self.pipeline, self._values, self._types, (KEY_BYTES, VALUE_BYTES))
        return rows.where(F.col(_WHY).isNull())

    def panes(self, start: int) -> tuple[DataFrame, tuple[str, ...]]:
        """Every row about the windows with this start (epoch ms), in order, and the names of the emitted aggregates.

        Columns: the keys, `<aggregate>__emitted`, `pane`, `at` (epoch ms), `deleted`.
        """
        canonical = self._starting_in((TimeRange(start, start + 1),))
        rows = canonical.where((F.col(START) == F.lit(start)) & F.col(_WHY).isNull())
        shown = rows.orderBy(AT_PARTITION, AT_OFFSET, _ORDER).select(
            *(f"`{k}`" for k in self.pipeline.keys),
            *(f"`{emitted_name(v)}`" for v in self._values),
            F.col(PANE).alias("pane"),
            F.col(AT).alias("at"),
            F.col(_DELETED).alias("deleted"),
        )
        return shown, tuple(self._values)

    def _persisted(self, frame: DataFrame) -> DataFrame:
        return frame if self._cached is None else self._cached.keep(frame)

    def _whole(self) -> DataFrame:
        """Every row about a window, canonical. The rows of a topic are decoded once."""
        if self._decoded is not None:
            return self._decoded
        rows = self._canonical(self.opened.frame)
        if self.opened.topic is not None:
            rows = self._decoded = self._persisted(rows)
        return rows

    def _starting_in(self, spans: Sequence[TimeRange]) -> DataFrame:
        """The canonical rows without most of those whose windows start outside of `spans`."""
        if self.opened.topic is not None:
            return self._of_topic(placed_in(spans))
        return self._canonical(starts_in(self.opened.frame, self.live, windows_of(self.pipeline), spans))

    def _of_topic(self, condition: Column) -> DataFrame:
        """The canonical rows of a topic, without most of those for which the condition does not hold; all where no run
        has kept any."""
        topic = self.opened.topic
        is_pruned = topic is not None and topic.has_kept
        return self._canonical(self.opened.frame.where(condition)) if is_pruned else self._whole()

    def _canonical(self, frame: DataFrame) -> DataFrame:
        rows = canonical_rows(self.opened, frame, self.pipeline, self._values, self._types)
        return without_erased(rows, self._erasures)

    def _emitted(self, rows: DataFrame, unreadable: int, outside: int, notes: tuple[str, ...]) -> Emitted:
        good = rows.where(F.col(_WHY).isNull()).drop(_WHY, _UNKNOWN)
        return Emitted(
            rows=last_rows(good, tuple(self.pipeline.keys), self.live, in_topic=self.opened.topic is not None),
            emissions=good.where(~F.col(_DELETED)).select(END, AT),
            values=tuple(self._values),
            has_emission_time=self.live.emitted_at is not None,
            description=self.opened.description,
            unreadable=unreadable,
            outside=outside,
            notes=(*self.opened.notes, *fields_without_effect(self.pipeline), *notes),
        )


def _survey(rows: DataFrame, pipeline: Pipeline, span: TimeRange) -> tuple[int, int, tuple[str, ...]]:
    """The number of canonical rows that cannot be read, the number outside `span`, and a note about the first ones."""
    bad = F.col(_WHY).isNotNull()
    outside = (F.col(START) < F.lit(span.start)) | (F.col(START) >= F.lit(span.end))
    first = F.min(F.when(bad, F.struct(AT_PARTITION, AT_OFFSET, _WHY)))
    unknown = F.min(F.col(_UNKNOWN))
    unread, beyond, example, operation, every = rows.agg(
        F.count_if(bad), F.count_if(~bad & outside), first, unknown, F.count(F.lit(1))
    ).collect()[0]
    if operation is not None:
        place = pipeline.source_of(("live", "operation")) or pipeline.name
        hint = "Known are +I, -U, +U, -D and c, r, u, d; map others by an expression (CASE ...)."
        raise SourceError(f"emitted rows have the unknown operation `{operation}`", place, hint)
    if not unread:
        return 0, int(beyond), ()
    place = "" if example[0] is None else f" at partition {example[0]}, offset {example[1]}"
    if unread == every:
        where = pipeline.source_of(("live",)) or pipeline.name
        hint = "Correct the section `live`: its columns, the unit of the window's bounds and their time zone."
        raise SourceError(
            f"not one of {unread:,} emitted rows can be read, the first{place}: {example[2]}", where, hint
        )
    many = "row was" if unread == 1 else "rows were"
    note = f"{unread:,} emitted {many} left out because they cannot be read, the first{place}: {example[2]}"
    return int(unread), int(beyond), (note.replace("because they", "because it") if unread == 1 else note,)


def refuse_without_live(pipeline: Pipeline) -> None:
    """Raises DefinitionError where the definition has no section `live:`."""
    if pipeline.live is None:
        raise DefinitionError(
            "the definition does not say what the live job emitted",
            pipeline.file or pipeline.name,
            "Add a `live:` section: source, window, and the columns that have other names.",
        )


def live_of(pipeline: Pipeline) -> Live:
    """The section `live:` of the definition of one deployment. Raises DefinitionError where there is none."""
    refuse_without_live(pipeline)
    if not isinstance(pipeline.live, Live):
        raise TypeError("the live job has several deployments, and each of them is read by itself")
    return pipeline.live


def read_late_output(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The live job's late side output: the columns PARTITION, OFFSET and `rw_late_output` (always true)."""
    late = live_of(pipeline).late_output
    if late is None:
        raise DefinitionError(
            "the definition does not say where the live job's late output lies",
            pipeline.source_of(("live",)) or pipeline.name,
            "Add `late_output:` to the section `live:`.",
        )
    opened = open_rows(spark, late.source, pipeline, ("live", "late_output", "source"))
    frame = opened.frame
    if opened.topic is not None:
        frame = frame.where(~F.col(TOMBSTONE) & F.col(UNREADABLE).isNull())
    for name, expression in (("partition", late.partition), ("offset", late.offset)):
        expression_type(frame, expression, pipeline, ("live", "late_output", name))
    place = frame.select(
        or_null(frame, late.partition).try_cast("int").alias(PARTITION),
        or_null(frame, late.offset).try_cast("bigint").alias(OFFSET),
    )
    return place.distinct().withColumn(LATE_OUTPUT, F.lit(True))


def last_rows(rows: DataFrame, keys: tuple[str, ...], live: Live, *, in_topic: bool = False) -> DataFrame:
    """The last of several rows for one window: by pane, then by order, then by emission time.

    In a topic the offset decides, and those three only where the rows of a window lie in several partitions. The result
    is sorted by keys and window, so that a join by them needs no second sort.
    """
    ranked = _ranked(rows, keys, in_topic=in_topic)
    tied = F.col(_SCATTERED) & F.col(_ORDER).eqNullSafe(F.col("rw_next"))
    if live.mode == "append" and live.pane is not None and not live.restarts and not in_topic:
        tied = tied | (F.col(ROWS) > F.col(PANE) + 1)  # panes are numbered from 0: one of them occurs twice
    last = ranked.where("rw_rank = 1").withColumn(AMBIGUOUS, (F.col(ROWS) > 1) & F.coalesce(tied, F.lit(False)))
    again = F.lit(False)
    for restart in live.restarts:
        again = again | F.coalesce((F.col(FIRST_AT) < F.lit(restart)) & (F.col(AT) >= F.lit(restart)), F.lit(False))
    last = last.withColumn(AGAIN, again)
    if live.mode != "append":
        last = last.where(~F.col(_DELETED))
    return last.drop("rw_rank", "rw_next", _ORDER, _DELETED, _SCATTERED, AT_PARTITION, AT_OFFSET)


def _ranked(rows: DataFrame, keys: tuple[str, ...], *, in_topic: bool) -> DataFrame:
    """The rows with `rw_rank` 1 for the one that counts of its window; `rw_next`: the order of the one before."""
    placed = with_window_hash(rows, keys)
    window = hashed_columns(keys)
    whole = Window.partitionBy(*window)
    scattered = F.min(AT_PARTITION).over(whole) < F.max(AT_PARTITION).over(whole) if in_topic else F.lit(True)
    placed = placed.withColumn(_SCATTERED, scattered)
    latest_first = Window.partitionBy(*window).orderBy(
        F.desc_nulls_last(F.when(F.col(_SCATTERED), F.col(_ORDER))),
        F.desc_nulls_last(AT_OFFSET),
        F.desc_nulls_last(AT_PARTITION),
    )
    return placed.select(
        "*",
        F.row_number().over(latest_first).alias("rw_rank"),
        F.lead(_ORDER).over(latest_first).alias("rw_next"),
        F.count(F.lit(1)).over(whole).cast("int").alias(ROWS),
        F.min(AT).over(whole).alias(FIRST_AT),
    )


def canonical_rows(
    opened: OpenRows,
    frame: DataFrame,
    pipeline: Pipeline,
    values: Mapping[str, str],
    types: Mapping[str, DataType],
    extra: Sequence[str] = (),
) -> DataFrame:
    """Rows of `opened` in the columns of the module, and `extra` ones; `rw_why` says why a row cannot be read."""
    live = live_of(pipeline)
    if opened.topic is not None and live.mode == "changelog":
        # After a delete, a record without a value lets the compaction of the broker remove the key.
        frame = frame.where(~F.col(TOMBSTONE))
    start, end = _bounds(frame, pipeline, live)
    texts: dict[FieldPath, str] = {}
    for key in types:
        texts["live", "keys", key] = text = live.keys.get(key, f"`{key}`")
        expression_type(frame, text, pipeline, ("live", "keys", key) if key in live.keys else ("live", "keys"))
    texts |= {("live", "values", name): text for name, text in values.items()}
    for name in ("pane", "order", "operation"):
        if (text := getattr(live, name)) is not None:
            expression_type(frame, text, pipeline, ("live", name))
            texts["live", name] = f"CAST({text} AS BIGINT)" if name == "pane" else text
    frame, columns = _read(frame, texts, is_topic=opened.topic is not None)
    keys = [columns["live", "keys", key].try_cast(kind).alias(key) for key, kind in types.items()]
    pane = columns.get(("live", "pane"), F.lit(None).cast("bigint"))
    at = F.lit(None).cast("bigint")
    if live.emitted_at is not None:
        kind = _instant_type(frame, pipeline, live.emitted_at, live.emitted_at_unit, ("live", "emitted_at"))
        at = _milliseconds(or_null(frame, live.emitted_at), kind, live.emitted_at_unit)
    order = columns.get(("live", "order"), F.lit(None).cast("int"))
    code = columns.get(("live", "operation"))
    code = None if code is None else F.upper(F.trim(code.cast("string")))
    deleted = F.lit(False) if code is None else F.coalesce(code.isin(*_DELETES), F.lit(False))
    unknown = F.lit(None).cast("string")
    no_bounds = F.when(start.isNull() | end.isNull(), NO_BOUNDS)
    fails = F.col(FAILED) if FAILED in frame.columns else F.lit(None).cast("string")
    why, place = F.coalesce(fails, no_bounds), (F.lit(None).cast("int"), F.lit(None).cast("bigint"))
    if opened.topic is not None:
        place = (F.col(AT_PARTITION), F.col(AT_OFFSET))
        empty = "a null value" if live.mode == "append" else "a null value, and no window in the key"
        no_window = F.lit(True) if live.mode == "append" else no_bounds.isNotNull()
        why = F.coalesce(UNREADABLE, F.when(F.col(TOMBSTONE) & no_window, empty), fails, no_bounds)
        deleted = deleted | F.col(TOMBSTONE)
    if code is not None:
        unknown = F.when(why.isNull() & ~F.coalesce(code.isin(*_KNOWN), F.lit(False)), F.coalesce(code, F.lit("null")))
        frame = frame.where(~F.coalesce(code.isin(*_RETRACTED), F.lit(False)))
    return frame.select(
        *keys,
        start.alias(START),
        end.alias(END),
        *(columns["live", "values", name].alias(emitted_name(name)) for name in values),
        pane.alias(PANE),
        at.alias(AT),
        _last_offsets(frame, pipeline, live).alias(OFFSETS),
        F.struct(pane.alias("pane"), order.alias("order"), at.alias("at")).alias(_ORDER),
        deleted.alias(_DELETED),
        place[0].alias(AT_PARTITION),
        place[1].alias(AT_OFFSET),
        why.alias(_WHY),
        unknown.alias(_UNKNOWN),
        *extra,
    )


def _read(
    frame: DataFrame, texts: Mapping[FieldPath, str], *, is_topic: bool
) -> tuple[DataFrame, dict[FieldPath, Column]]:
    """`frame` with the values of expressions by their place in the definition; null, and FAILED, where one fails.

    They are not evaluated for records of a topic that cannot be decoded.
    """
    names = {path: f"rw_x{index}" for index, path in enumerate(texts)}
    tries = {names[path]: attempt(frame, dotted(path), text) for path, text in texts.items()}
    if is_topic:
        tries = {name: replace(one, only_if=F.col(UNREADABLE).isNull()) for name, one in tries.items()}
    return evaluated(frame, tries), {path: F.col(name) for path, name in names.items()}


def value_columns(frame: DataFrame, pipeline: Pipeline) -> dict[str, str]:
    """For each compared aggregate its expression over the emitted columns. Aggregates without one are not compared."""
    live = live_of(pipeline)
    there = {name.lower() for name in frame.columns}
    found = {}
    for name in pipeline.aggregates:
        text = live.values.get(name)
        if text is None and not live.values and name.lower() in there:
            text = f"`{name}`"
        if text is not None:
            expression_type(frame, text, pipeline, ("live", "values", name) if live.values else ("live", "source"))
            found[name] = text
    if not found:
        known = ", ".join(frame.columns)
        hint = f"Name the columns under live.values, as `{next(iter(pipeline.aggregates))}: ...`; there are {known}."
        where = pipeline.source_of(("live",)) or pipeline.name
        raise DefinitionError("no aggregate of the definition is a column of the emitted windows", where, hint)
    return found


def _bounds(frame: DataFrame, pipeline: Pipeline, live: Live) -> tuple[Column, Column]:
    """Start and end of the half-open window, epoch ms."""
    columns = live.window
    windows = windows_of(pipeline)
    start = None if columns.start is None else _bound(frame, pipeline, live.window, columns.start, "start")
    end = None
    if columns.end is not None:
        end = _bound(frame, pipeline, live.window, columns.end, "end") + F.lit(columns.inclusive_end)
    if start is None and end is not None and isinstance(windows, AlignedWindows):
        start = start_before(windows, end)
    if end is None and start is not None and isinstance(windows, AlignedWindows):
        end = end_after(windows, start)
    if start is None or end is None:
        missing = "start" if start is None else "end"
        what = f"is missing: {missing}s of {pipeline.window.type} windows do not follow from the other bound"
        raise refuse(pipeline, ("live", "window", missing), Refused(what, f"name the column of the {missing}"))
    return start, end


def _bound(frame: DataFrame, pipeline: Pipeline, columns: WindowColumns, text: str, which: str) -> Column:
    """One bound of the windows (epoch ms): `text` is its expression, `which` the field `start` or `end`."""
    unit, zone = columns.unit, columns.time_zone
    path = ("live", "window", which)
    kind = expression_type(frame, text, pipeline, path)
    value = or_null(frame, text)
    if zone is None:
        kind = _instant_type(frame, pipeline, text, unit, path)
        return _milliseconds(value, kind, unit)
    if isinstance(kind, (TimestampNTZType, StringType)) and unit in ("timestamp", "iso"):
        clock = value.try_cast("timestamp")
        local = F.unix_millis(F.to_utc_timestamp(clock, zone))
        # Text with a zone of its own is an instant already.
        return F.when(value.cast("string").rlike(_ZONED), F.unix_millis(clock)).otherwise(local)
    kind = _instant_type(frame, pipeline, text, unit, path)
    shown = F.timestamp_millis(_milliseconds(value, kind, unit))
    return F.unix_millis(F.to_utc_timestamp(shown, zone))


def _milliseconds(value: Column, kind: DataType, unit: TimeUnit) -> Column:
    """An instant (epoch ms); null where it is so far away that it, or a sum with it, is no timestamp."""
    milliseconds = instants(value, kind, unit).milliseconds
    return F.when(milliseconds.between(-_FARTHEST, _FARTHEST), milliseconds)


def _last_offsets(frame: DataFrame, pipeline: Pipeline, live: Live) -> Column:
    target = "map<int,bigint>"
    if live.last_offsets is None:
        return F.lit(None).cast(target)
    path = ("live", "last_offsets")
    kind = expression_type(frame, live.last_offsets, pipeline, path)
    value = or_null(frame, live.last_offsets)
    match kind:
        case MapType():
            return tried(value.cast(target))
        case StringType():
            return tried(F.from_json(value, "map<string,bigint>").cast(target))
        case ArrayType():
            numbers = F.sequence(F.lit(0), F.size(value) - F.lit(1))
            pairs = tried(F.map_from_arrays(numbers, value.cast("array<bigint>")))
            return F.when(F.size(value) > 0, F.map_filter(pairs, lambda _, last: last.isNotNull())).cast(target)
        case _:
            what = f"is {kind.simpleString().upper()}, not a map of partition to offset"
            hint = "name a MAP<INT, BIGINT> column, JSON text, or an array by partition"
            raise refuse(pipeline, path, Refused(what, hint))


def _instant_type(frame: DataFrame, pipeline: Pipeline, text: str, unit: TimeUnit, path: FieldPath) -> DataType:
    kind = expression_type(frame, text, pipeline, path)
    field = "emitted_at_unit" if path[-1] == "emitted_at" else "unit"
    if (refused := unit_refused(kind, unit, field)) is not None:
        raise refuse(pipeline, path, refused)
    return kind
