"""Windows that keep their values, because records that they were made of are gone.

A window is computed again from what there is. Where retention, a lifecycle rule or compaction has removed some of it,
that would be less than what is published. A window keeps its value for one reason: positions that were read are gone,
and by its event times it can hold one of them. A record whose key, event time, row of a lookup or filter has changed is
there all the same, so its window keeps nothing. What was final below the first record that is still there stays too:
see `spark_jobs.runs.night.final`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import HistoryError, RewindowError
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import quoted, starts_within
from spark_jobs.replay.assign import END, START, assign_windows
from spark_jobs.replay.columns import (
    CLOSED_AT,
    DROPPED,
    EVENT_TIME,
    HISTORY_GONE,
    OFFSET,
    ON_TIME,
    PARTITION,
    STATE,
    counts_of,
    end_offset,
    records_in,
)
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.life.documents import Request, StagedRange, recorded_definition
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.final import Final
from spark_jobs.runs.night.reading import Empty, Reading, overlapping_joined
from spark_jobs.runs.night.stored import read_before
from spark_jobs.runs.planning.plan import open_planned
from spark_jobs.runs.work.difference import COVERS, GIVES_WAY, MADE_OF, publication_of
from spark_jobs.runs.work.job import Job
from spark_jobs.sources import canonical, cut_at, good, is_empty
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.joins import OTHER, others, same

_BOUNDS = ("rw_from", "rw_to")
_AS_OF, _TOTAL, _FOUND, _LATER = "rw_as_of", "rw_total", "rw_found", "rw_later"
_ENDS = "map<string, bigint>"
_CLOSED, _IS_FINAL, _LACKS = "rw_closed", "rw_is_final", "rw_lacks"


def keep_touched(job: Job, staged: StagedRange, new: DataFrame) -> None:
    """Keep those of a reconciliation's windows that lack records; `new` are the good records since the run before.

    A window counts its records. It lacks some where it counts fewer now than were published, with those of `new` that
    the published value has not seen. So the history is not read again.
    """
    names, published = job.spec.keys, _published(job, staged)
    seen, computed = _windows_of(published, names), _windows_of(job.staging.rows(), names)
    now = computed.select(*others((*names, *_BOUNDS)), F.col(_TOTAL).alias("rw_now"))
    compared = _joined(seen, now, names, ("rw_now",))
    compared = _with_counts(compared, _pairs(new, job.spec), names)
    lacking = compared.where(F.col("rw_now") < F.col(_TOTAL) + F.col(_LATER)).withColumn(_LACKS, F.lit(True))
    _stage(job, _kept(published, lacking, names, covers=False))


def keep_of_range(job: Job, staged: StagedRange, records: DataFrame, read: DataFrame) -> None:
    """Keep those of the published windows in a run's range that lack records, or were final below what is there.

    `records` are the good ones up to the run's end offsets; `read` are all of them, also those in quarantine. A window
    that another definition has made is looked at by that definition, which says which records it was made of.

    Raises HistoryError where such a window has other keys than the run's windows, and where windows have lost more
    records than are gone: then some of their records are there, in other windows.
    """
    reading = job.plan.reading
    if staged.base is None or job.plan.another_log or not reading.has_gone:
        return
    before = read_before(job.spark, job.result.tables, job.pipeline, but=job.result.run_id)
    published = _published(job, staged)
    final = Final.of(job.pipeline, job.spec, reading, published)
    kept = None
    for definition, runs in _by_definition(job, published):
        rows = published.where(F.col("run_id").isin(runs))
        spec = job.spec if definition is None else spec_of(definition, [p.partition for p in job.plan.partitions])
        own = records if definition is None else _records_of(job, definition)
        covers = spec.has_sessions or (definition is not None and definition.window != job.pipeline.window)
        counted = _counted(rows, own, spec, None if before is None else before.reading.empty, final)
        lacking = _within(counted.where(F.col(_FOUND) < F.col(_TOTAL)), reading)
        refuse_moved(lacking.where(~F.col(_IS_FINAL)), reading, job.result.tables.windows)
        wanted = lacking.withColumn(_LACKS, F.lit(True))
        if final.is_there:
            places = same((*spec.keys, *_BOUNDS), "rw_lacking_")
            beside = lacking.select(*others((*spec.keys, *_BOUNDS), "rw_lacking_"))
            rest = counted.where(F.col(_IS_FINAL)).join(beside, places, "left_anti")
            wanted = wanted.unionByName(rest.withColumn(_LACKS, F.lit(False)))
        if set(spec.keys) != set(job.spec.keys):
            if not wanted.isEmpty():
                raise _cannot_keep(job)
            continue
        chosen = _kept(rows, wanted, spec.keys, covers=covers)
        kept = chosen if kept is None else kept.unionByName(chosen)
    if kept is not None:
        read_to = {} if before is None else before.reading.ends
        if final.is_there:
            kept = kept.unionByName(_not_computed(job, published, records, final, read_to), allowMissingColumns=True)
        _stage(job, kept)
        _keep_late(job, staged, records, final, read_to)
    _keep_quarantined(job, read)


def _not_computed(
    job: Job, published: DataFrame, records: DataFrame, final: Final, read_to: Mapping[int, int]
) -> DataFrame:
    """The staged windows that were final and are not published: they give way, unless a new record lies in them.

    A record that was read before, and lies in another window now, belongs to the one that was final.
    """
    names = (*job.spec.keys, *_BOUNDS)
    ends = {"window_start": _BOUNDS[0], "window_end": _BOUNDS[1]}
    bounds = {own: F.unix_millis(name) for name, own in ends.items()}
    staged = job.staging.rows().withColumns(bounds)
    chosen = staged.where(final.is_final(F.col(_BOUNDS[1]), F.lit(None).cast("bigint")))
    known = published.withColumns(bounds).select(*others(names, "rw_known_")).distinct()
    chosen = chosen.join(known, same(names, "rw_known_"), "left_anti")
    if not job.spec.has_sessions:
        new = records.where(~F.coalesce(F.col(OFFSET) < end_offset(read_to), F.lit(False)))
        chosen = chosen.join(_pairs(new, job.spec), same(names), "left_anti")
    return chosen.drop(*_BOUNDS).withColumns({COVERS: F.lit(False), GIVES_WAY: F.lit(True)})


def _counted(rows: DataFrame, records: DataFrame, spec: ReplaySpec, empty: Empty | None, final: Final) -> DataFrame:
    """One row for each published window: what it counts, how many of these records are there, and if it was final.

    Records that have come late since, at offsets that were `empty`, are none of those.
    """
    seen = _windows_of(rows, spec.keys)
    pairs = _pairs_of_sessions(seen, records, spec) if spec.has_sessions else _pairs(records, spec)
    is_final = final.is_final(F.col(_BOUNDS[1]), F.col(_CLOSED))
    return _with_counts(seen, pairs, spec.keys, empty).withColumn(_IS_FINAL, is_final)


def _within(windows: DataFrame, reading: Reading) -> DataFrame:
    """The windows that can hold a gone record by their times."""
    spans = [(span.start, span.end) for span, _ in overlapping_joined(reading.gone_spans())]
    frame = windows.sparkSession.createDataFrame(spans, "rw_first BIGINT, rw_end BIGINT")
    fits = (F.col(_BOUNDS[0]) < F.col("rw_end")) & (F.col(_BOUNDS[1]) > F.col("rw_first"))
    return windows.join(F.broadcast(frame), fits, "left_semi")


def refuse_moved(lacking: DataFrame, reading: Reading, where: str) -> None:
    """Raises HistoryError where windows lack more records than are gone, by the event times of these.

    Looked at are all windows `lacking` records that have the same bounds, whatever their keys, since a record is in one
    of them at most. `where`: the table of the windows, for the error.
    """
    lacks = F.sum(F.col(_TOTAL) - F.col(_FOUND)).alias("lacks")
    found = lacking.groupBy(*_BOUNDS).agg(lacks, F.count("*").alias("count")).toArrow()
    starts, ends, lost, counts = (column.to_numpy() for column in found.columns)
    gone = gone_within(reading, starts, ends)
    if not (is_more := lost > gone).any():
        return
    first, last = int(starts[is_more].min()), int(ends[is_more].max())
    raise HistoryError(
        f"{counts[is_more].sum()} windows from {format_instant(first)} to {format_instant(last)} lack "
        f"{lost[is_more].sum()} records, and only {gone[is_more].sum()} of the records that were read are gone there: "
        "others are there, in other windows",
        where,
        "Their key, event time, lookup row or filter has changed, and nothing tells them from those that are gone. Put "
        "it back as it was, bring the gone records back, or write to another table (output.table).",
    )


def gone_within(reading: Reading, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """At most how many gone records lie in each of the windows `[starts, ends)`, by the times of their buckets."""
    spans = reading.gone_spans()
    firsts = np.array([span.start for span, _ in spans], dtype=np.int64)
    lasts = np.array([span.end - 1 for span, _ in spans], dtype=np.int64)
    counts = np.array([gone for _, gone in spans], dtype=np.int64)
    return _below(firsts, counts, ends) - _below(lasts, counts, starts)


def _below(times: np.ndarray, counts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The sum of the counts whose time is below each of `at`."""
    order = np.argsort(times)
    sums = np.concatenate(([0], np.cumsum(counts[order])))
    return sums[np.searchsorted(times[order], at, side="left")]


def _published(job: Job, staged: StagedRange) -> DataFrame:
    """The windows in scope as they were published last; what somebody else has done to them since does not count."""
    rows = job.published_table.last_published() if staged.repairs else job.published_table.current()
    return publication_of(job, staged).in_scope(rows)


def _windows_of(windows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each window: keys, `_BOUNDS` (epoch ms), its close, how many records it counts, its end offsets."""
    known = any_of(F.col(c).isNotNull() for c in counts_of(windows))
    as_of = F.col("as_of") if "as_of" in windows.columns else F.lit(None).cast("string")
    bounds = (F.unix_millis(name).alias(own) for name, own in zip(("window_start", "window_end"), _BOUNDS, strict=True))
    closed = F.unix_millis(CLOSED_AT) if CLOSED_AT in windows.columns else F.lit(None).cast("bigint")
    # Of several firings the last one counts most. A window without counts has a record at least.
    counted = F.when(known, records_in(windows)).otherwise(F.lit(1))
    return (
        windows.select(*quoted(keys), *bounds, counted.alias(_TOTAL), as_of.alias("a"), closed.alias(_CLOSED))
        .groupBy(*quoted((*keys, *_BOUNDS)))
        .agg(F.max(_TOTAL).alias(_TOTAL), _largest_ends("a").alias(_AS_OF), F.max(_CLOSED).alias(_CLOSED))
    )


def _largest_ends(texts: str) -> Column:
    """The largest end offset of each partition, of end offsets as JSON."""
    ends = F.collect_list(F.from_json(texts, _ENDS))
    none = F.from_json(F.lit("{}"), _ENDS)
    return F.aggregate(ends, none, lambda found, one: F.map_zip_with(found, one, lambda _, a, b: F.greatest(a, b)))


def _filtered(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    timed = records.where(F.col(EVENT_TIME).isNotNull())
    return timed.where(spec.after_watermark) if spec.after_watermark else timed


def _pairs(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Each record in each of its windows: keys, bounds, partition and offset."""
    placed = assign_windows(_filtered(records, spec), spec.aligned_windows)
    bounds = (F.col(START).alias(f"{OTHER}{_BOUNDS[0]}"), F.col(END).alias(f"{OTHER}{_BOUNDS[1]}"))
    return placed.select(*others(spec.keys), *bounds, PARTITION, OFFSET)


def _pairs_of_sessions(seen: DataFrame, records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """The same for sessions, which lie where their records are."""
    sessions = seen.select(*quoted(spec.keys), *_BOUNDS)
    placed = _filtered(records, spec).select(*others(spec.keys), EVENT_TIME, PARTITION, OFFSET)
    inside = (F.col(EVENT_TIME) >= F.col(_BOUNDS[0])) & (F.col(EVENT_TIME) < F.col(_BOUNDS[1]))
    joined = placed.join(sessions, [*same(spec.keys), inside])
    bounds = (F.col(_BOUNDS[0]).alias(f"{OTHER}{_BOUNDS[0]}"), F.col(_BOUNDS[1]).alias(f"{OTHER}{_BOUNDS[1]}"))
    return joined.select(*(f"`{OTHER}{key}`" for key in spec.keys), *bounds, PARTITION, OFFSET)


def _with_counts(seen: DataFrame, pairs: DataFrame, keys: Sequence[str], empty: Empty | None = None) -> DataFrame:
    """Add how many of the `pairs` are in each window, below its end offsets (`_FOUND`) and from there on (`_LATER`).

    Those at offsets that were `empty` have come later, too.
    """
    joined = pairs.join(seen.select(*quoted((*keys, *_BOUNDS)), _AS_OF), same((*keys, *_BOUNDS)))
    end = F.coalesce(F.try_element_at(_AS_OF, F.col(PARTITION).cast("string")), F.lit(0).cast("bigint"))
    has_none = F.coalesce(F.size(_AS_OF) <= 0, F.lit(True))  # a history without positions
    is_later = ~has_none & ((F.col(OFFSET) >= end) | is_empty(empty))
    counted = joined.groupBy(*others((*keys, *_BOUNDS))).agg(
        F.count_if(~is_later).alias(_FOUND), F.count_if(is_later).alias(_LATER)
    )
    return _joined(seen, counted, keys, (_FOUND, _LATER))


def _joined(windows: DataFrame, counts: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """The windows with counts from another frame, which has keys and bounds as `others`; 0 where it has none."""
    joined = windows.join(counts, same((*keys, *_BOUNDS)), "left")
    return joined.select(*(f"`{c}`" for c in windows.columns), *(F.coalesce(n, F.lit(0)).alias(n) for n in names))


def _kept(published: DataFrame, wanted: DataFrame, keys: Sequence[str], *, covers: bool) -> DataFrame:
    """The rows of windows that stay, as they are staged: with the values that are published.

    Records that came since are counted as dropped: so a window goes on counting all that it ever had. `wanted` says of
    each window whether it lacks records (`_LACKS`).
    """
    chosen = wanted.select(*others((*keys, *_BOUNDS)), _LATER, _LACKS)
    bounds = [F.unix_millis(name) == F.col(f"{OTHER}{own}") for name, own in zip((START, END), _BOUNDS, strict=True)]
    count = DROPPED if DROPPED in published.columns else ON_TIME  # complete values alone drop none
    state = F.when(F.col(_LACKS), F.lit(HISTORY_GONE)).otherwise(F.col(STATE)) if STATE in published.columns else None
    changed = {STATE: state, count: F.col(count) + F.col(_LATER)}
    there = {name: value for name, value in changed.items() if name in published.columns and value is not None}
    rows = published.join(chosen, [*same(keys), *bounds]).withColumns(
        {**there, COVERS: F.lit(covers), GIVES_WAY: F.lit(False)}
    )
    made_of = F.col("as_of") if "as_of" in rows.columns else F.lit(None).cast("string")
    columns = [c for c in (*published.columns, COVERS, GIVES_WAY) if c not in FACTS.names]
    return rows.select(*quoted(columns), made_of.alias(MADE_OF))


def _stage(job: Job, kept: DataFrame) -> None:
    with job.stage("kept windows", "records that they were made of are gone"):
        job.staging.write(0, kept, StagedPart.KEPT)


def _keep_late(job: Job, staged: StagedRange, records: DataFrame, final: Final, read_to: Mapping[int, int]) -> None:
    """Stage once more the late records of the range that are published, where they are gone or their window was final.

    Of a final window, those below the ends that were read (`read_to`) are those that are published, and no others.
    """
    if not job.is_faithful or not job.spark.catalog.tableExists(job.result.tables.late):
        return
    late = job.spark.table(job.result.tables.late)
    if not staged.everything:
        late = late.where(starts_within(job.plan.span, "range_start"))
    if final.is_there:
        _drop_late(job, staged, final, read_to)
    of_final = _is_of_final(final)
    kept = late.where(of_final).unionByName(_gone(late.where(~of_final), records))
    fields = job.staging.rows(StagedPart.LATE).schema
    columns = [
        F.col(f"`{f.name}`") if f.name in late.columns else F.lit(None).cast(f.dataType).alias(f.name) for f in fields
    ]
    job.staging.write(0, kept.select(*columns), StagedPart.LATE)


def _is_of_final(final: Final) -> Column:
    """Whether a late record's window was final; of a record in no window its event time counts."""
    end = F.coalesce(F.unix_millis("window_end"), F.unix_millis("event_time") + F.lit(1))
    return F.coalesce(final.is_final(end, F.lit(None).cast("bigint")), F.lit(False))


def _drop_late(job: Job, staged: StagedRange, final: Final, read_to: Mapping[int, int]) -> None:
    """Take away the staged late records of final windows that a run before has judged."""
    was_read = F.coalesce(F.col("offset") < end_offset(read_to, "partition"), F.lit(False))
    for chunk in (staged.expected or {}).get(StagedPart.LATE.value, ()):
        rows = job.staging.chunk(chunk, StagedPart.LATE)
        job.staging.write(chunk, rows.where(~(_is_of_final(final) & was_read)), StagedPart.LATE)


def _keep_quarantined(job: Job, read: DataFrame) -> None:
    """Stage once more the quarantined records that are published, and are gone since."""
    table = job.result.tables.quarantine
    if not job.spark.catalog.tableExists(table):
        return
    placed = job.spark.table(table).where(F.col("offset").isNotNull()).drop("run_id")
    gone = _gone(placed, read)
    if not gone.isEmpty():
        job.staging.write(1, gone, StagedPart.QUARANTINE)


def _gone(published: DataFrame, records: DataFrame) -> DataFrame:
    """The published records, with their `partition` and `offset`, that are not among `records`."""
    there = records.select(F.col(PARTITION).alias("rw_there_partition"), F.col(OFFSET).alias("rw_there_offset"))
    is_there = (F.col("partition") == F.col("rw_there_partition")) & (F.col("offset") == F.col("rw_there_offset"))
    return published.join(there, is_there, "left_anti")


def _by_definition(job: Job, published: DataFrame) -> list[tuple[Pipeline | None, list[str]]]:
    """The runs that have published these windows, by their definition; None: that of this run.

    So it is taken to be where a run's definition is not kept any more.
    """
    runs = sorted(row[0] for row in published.select("run_id").distinct().collect())
    rows = job.ledger.published_runs().where(F.col("run_id").isin(runs))
    known = {row[0]: row for row in rows.select("run_id", "definition_hash", "definition").collect()}
    own, others = [], {}
    for run_id in runs:
        kind = known[run_id][1] if run_id in known else None
        definition = None
        if kind not in (None, job.plan.definition_hash):
            definition = _recorded(run_id) or _rebuilt(job, known[run_id][2])
        if definition is None:
            own.append(run_id)
        else:
            others.setdefault(kind, (definition, []))[1].append(run_id)
    return [*([(None, own)] if own else []), *others.values()]


def _recorded(run_id: str) -> Pipeline | None:
    folder = RunStore.configured().folder(run_id)
    try:
        request = Request.read(folder)
        return None if request is None else recorded_definition(folder, request)
    except RewindowError:
        return None


def _rebuilt(job: Job, canonical_json: str | None) -> Pipeline | None:
    """The definition from what the ledger keeps of it, over the history as this run's definition names it."""
    now = job.pipeline.model_dump(mode="json", by_alias=True, include={"name", "history", "output"})
    try:
        return Pipeline.model_validate(json.loads(canonical_json or "") | now)
    except ValueError:
        return None


def _records_of(job: Job, definition: Pipeline) -> DataFrame:
    """The good records of the run's history as an earlier definition read them."""
    plan = job.plan
    opened = open_planned(job.spark, definition, plan)
    records = good(canonical(opened, definition))
    return cut_at(records, plan.as_of) if plan.cuts else records


def _cannot_keep(job: Job) -> HistoryError:
    return HistoryError(
        "records are gone that published windows were made of, and the definition has other keys than they have: they "
        "can neither be computed again nor kept beside the new ones",
        job.result.tables.windows,
        "Write to another table (output.table), or keep the keys.",
    )
