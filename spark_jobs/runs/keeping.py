"""Windows that keep their values: records that they were made of are not in the history any more.

A window is computed again from what there is. Where retention, a lifecycle rule or compaction has removed some of it,
that would be less than what is published. So each window that a run would change is looked at: it was made of the
records that it counts, up to the end offsets of the run that published it. If fewer of them are there, it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import add, or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import HistoryError, RewindowError
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import quoted, starts_within
from spark_jobs.replay.assign import END, START, assign_windows
from spark_jobs.replay.columns import DROPPED, EVENT_TIME, HISTORY_GONE, LATE, OFFSET, ON_TIME, PARTITION, STATE
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.difference import COVERS, MADE_OF, publication_of
from spark_jobs.runs.documents import Changes, Request, StagedRange, recorded_definition
from spark_jobs.runs.job import Job
from spark_jobs.runs.past import FilesSince, ReadBefore, counted_below
from spark_jobs.runs.plan import open_planned
from spark_jobs.runs.plan_document import Plan
from spark_jobs.runs.store import RunStore
from spark_jobs.sources import Change, Empty, canonical, change_between, cut_at, good, is_empty
from spark_jobs.spark.joins import OTHER, others, same

_BOUNDS = ("rw_from", "rw_to")
_AS_OF, _TOTAL, _FOUND, _LATER = "rw_as_of", "rw_total", "rw_found", "rw_later"


def has_lost(job: Job) -> bool:
    """Whether published windows lack records, or may, so that later runs look at each one too."""
    if not job.staging.has(StagedPart.KEPT):
        return False
    staged, changes = StagedRange.read(job.folder), Changes.read(job.folder)
    # A run over a range has looked at all its windows, a night at some.
    return staged is None or not staged.replaces or changes is None or changes.history_gone > 0


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
    lacking = compared.where(F.col("rw_now") < F.col(_TOTAL) + F.col(_LATER))
    _stage(job, _kept(published, lacking, names, covers=False))


def keep_of_range(job: Job, staged: StagedRange, records: DataFrame) -> None:
    """Keep those of the published windows in a run's range that lack records, where records may be gone.

    `records` are the good ones up to the run's end offsets. A window that another definition has made is looked at by
    that definition, which says which records it was made of.

    Raises HistoryError where such a window has other keys than the run's windows.
    """
    if staged.base is None or job.plan.another_log:
        return
    before = ReadBefore.latest(job.spark, job.result.tables, job.pipeline, but=job.result.run_id)
    if not _may_lack(job.spark, job.plan, job.pipeline, before):
        return
    empty = None if before is None or before.past is None else before.past.empty
    published = _published(job, staged)
    kept = None
    for definition, runs in _by_definition(job, published):
        rows = published.where(F.col("run_id").isin(runs))
        spec = job.spec if definition is None else spec_of(definition, [p.partition for p in job.plan.partitions])
        read = records if definition is None else _records_of(job, definition)
        covers = spec.has_sessions or (definition is not None and definition.window != job.pipeline.window)
        lacking = _lacking(rows, read, spec, empty)
        if set(spec.keys) != set(job.spec.keys):
            if not lacking.isEmpty():
                raise _cannot_keep(job)
            continue
        chosen = _kept(rows, lacking, spec.keys, covers=covers)
        kept = chosen if kept is None else kept.unionByName(chosen)
    if kept is not None:
        _stage(job, kept)
        _keep_late(job, staged, records)


def _lacking(published: DataFrame, records: DataFrame, spec: ReplaySpec, empty: Empty | None) -> DataFrame:
    """The published windows of which fewer records are there than they count.

    Records that have come late since, at offsets that were `empty`, are none of those.
    """
    seen = _windows_of(published, spec.keys)
    pairs = _pairs_of_sessions(seen, records, spec) if spec.has_sessions else _pairs(records, spec)
    return _with_counts(seen, pairs, spec.keys, empty).where(F.col(_FOUND) < F.col(_TOTAL))


def _published(job: Job, staged: StagedRange) -> DataFrame:
    """The windows in scope as they were published last; what somebody else has done to them since does not count."""
    rows = job.published_table.last_published() if staged.repairs else job.published_table.current()
    return publication_of(job, staged).in_scope(rows)


def _windows_of(windows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each window: keys, `_BOUNDS` (epoch ms), how many records it counts, and its end offsets."""
    counts = [c for c in (ON_TIME, LATE, DROPPED) if c in windows.columns]
    total = reduce(add, (F.coalesce(F.col(c), F.lit(0)) for c in counts), F.lit(0))
    known = reduce(or_, (F.col(c).isNotNull() for c in counts), F.lit(False))
    as_of = F.col("as_of") if "as_of" in windows.columns else F.lit(None).cast("string")
    bounds = (F.unix_millis(name).alias(own) for name, own in zip(("window_start", "window_end"), _BOUNDS, strict=True))
    # Of several firings the last one counts most. A window without counts has a record at least.
    return (
        windows.select(*quoted(keys), *bounds, F.when(known, total).otherwise(F.lit(1)).alias(_TOTAL), as_of.alias("a"))
        .groupBy(*quoted((*keys, *_BOUNDS)))
        .agg(F.max(_TOTAL).alias(_TOTAL), F.from_json(F.max("a"), "map<string, bigint>").alias(_AS_OF))
    )


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


def _kept(published: DataFrame, lacking: DataFrame, keys: Sequence[str], *, covers: bool) -> DataFrame:
    """The rows of windows that lack records, as they are staged: with the values that are published.

    Records that came since are counted as dropped: so a window goes on counting all that it ever had.
    """
    wanted = lacking.select(*others((*keys, *_BOUNDS)), _LATER)
    bounds = [F.unix_millis(name) == F.col(f"{OTHER}{own}") for name, own in zip((START, END), _BOUNDS, strict=True)]
    count = DROPPED if DROPPED in published.columns else ON_TIME  # complete values alone drop none
    changed = {STATE: F.lit(HISTORY_GONE), count: F.col(count) + F.col(_LATER)}
    there = {name: value for name, value in changed.items() if name in published.columns}
    rows = published.join(wanted, [*same(keys), *bounds]).withColumns({**there, COVERS: F.lit(covers)})
    made_of = F.col("as_of") if "as_of" in rows.columns else F.lit(None).cast("string")
    columns = [c for c in (*published.columns, COVERS) if c not in FACTS.names]
    return rows.select(*quoted(columns), made_of.alias(MADE_OF))


def _stage(job: Job, kept: DataFrame) -> None:
    with job.stage("kept windows", "records that they were made of are gone"):
        job.staging.write(0, kept, StagedPart.KEPT)


def _keep_late(job: Job, staged: StagedRange, records: DataFrame) -> None:
    """Stage the late records of the range once more that an earlier run has published and that are gone since."""
    if not job.is_faithful or not job.spark.catalog.tableExists(job.result.tables.late):
        return
    late = job.spark.table(job.result.tables.late)
    if not staged.everything:
        late = late.where(starts_within(job.plan.span, "range_start"))
    there = records.select(F.col(PARTITION).alias("rw_there_partition"), F.col(OFFSET).alias("rw_there_offset"))
    is_there = (F.col("partition") == F.col("rw_there_partition")) & (F.col("offset") == F.col("rw_there_offset"))
    gone = late.join(there, is_there, "left_anti")
    fields = job.staging.rows(StagedPart.LATE).schema
    columns = [
        F.col(f"`{f.name}`") if f.name in late.columns else F.lit(None).cast(f.dataType).alias(f.name) for f in fields
    ]
    job.staging.write(0, gone.select(*columns), StagedPart.LATE)


def _may_lack(spark: SparkSession, plan: Plan, pipeline: Pipeline, before: ReadBefore | None) -> bool:
    """Whether records may be gone that an earlier run has read, by what that one kept."""
    if plan.inputs:
        befores = [None] * len(plan.inputs) if before is None else before.of_inputs(len(plan.inputs))
        owns = zip(plan.of_inputs(), pipeline.inputs, befores, strict=True)
        return any(_may_lack(spark, own, one, its) for own, one, its in owns)
    history, past = pipeline.history, None if before is None else before.past
    if history.topic_alone is not None and plan.topic is not None:
        known = {} if past is None or past.starts is None else past.starts
        is_later = any(r.start > known.get(r.partition, 0) for r in plan.topic.ranges)
        return is_later or "compacted" in history.topic_alone.accept or (past is not None and past.has_lost)
    if before is None or past is None:
        return False
    if past.has_lost:
        return True
    if not history.is_stitched and past.files is not None and plan.files is not None:
        files = FilesSince.between(past.files, plan.files)
        return bool(files.gone or files.changed)
    if not history.is_stitched and past.snapshot is not None and plan.snapshot is not None:
        return change_between(spark, past.snapshot, plan.snapshot) not in (Change.NONE, Change.APPENDED)
    counts = plan.history_counts or {}
    if plan.as_of != before.as_of:  # new records would hide how many are gone
        records = canonical(open_planned(spark, pipeline, plan), pipeline)
        below, late = counted_below(records, pipeline, before.as_of, past.empty)
        counts = {partition: count - late.get(partition, 0) for partition, count in below.items()}
    return any(counts.get(partition, 0) < count for partition, count in (past.counts or {}).items())


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
