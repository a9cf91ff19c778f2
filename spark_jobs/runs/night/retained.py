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
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK
from spark_jobs.errors import HistoryError, RewindowError
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import quoted
from spark_jobs.pins import Pins
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import (
    DROPPED,
    HISTORY_GONE,
    NOT_COUNTED,
    OFFSET,
    PARTITION,
    STATE,
    end_offset,
)
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.life.documents import Request, StagedRange, recorded_definition
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.final import Final
from spark_jobs.runs.night.lacking import (
    BOUNDS,
    FOUND,
    IS_FINAL,
    LATER,
    MISSED,
    TOTAL,
    counted_windows,
    pairs_of,
    refuse_moved,
    windows_in,
    with_counts,
    with_joined,
    within,
)
from spark_jobs.runs.night.late_kept import keep_late, keep_quarantined
from spark_jobs.runs.night.stored import read_before
from spark_jobs.runs.work.difference import COVERS, GIVES_WAY, MADE_OF, publication_of
from spark_jobs.runs.work.job import Job
from spark_jobs.sources import canonical, cut_at, good, names_of, open_history
from spark_jobs.spark.joins import OTHER, others, same

_LACKS = "rw_lacks"


def keep_touched(job: Job, staged: StagedRange, new: DataFrame) -> None:
    """Keep those of a reconciliation's windows that lack records; `new` are the good records since the run before.

    A window counts its records. It lacks some where it counts fewer now than were published, with those of `new` that
    the published value has not seen. So the history is not read again.
    """
    names, published = job.spec.keys, _published(job, staged)
    seen, computed = windows_in(published, names), windows_in(job.staging.rows(), names)
    now = computed.select(*others((*names, *BOUNDS)), F.col(TOTAL).alias("rw_now"))
    compared = with_joined(seen, now, names, ("rw_now",))
    compared = with_counts(compared, pairs_of(new, job.spec), names, late=_late(job))
    lacking = compared.where(F.col("rw_now") < F.col(TOTAL) + F.col(LATER)).withColumn(_LACKS, F.lit(True))
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
        empty = None if before is None else before.reading.empty
        counted = counted_windows(rows, own, spec, empty, final, _late(job))
        lacking = within(counted.where(F.col(FOUND) < F.col(TOTAL)), reading)
        refuse_moved(lacking.where(~F.col(IS_FINAL)), reading, job.result.tables.windows)
        wanted = lacking.withColumn(_LACKS, F.lit(True))
        if final.is_there:
            places = same((*spec.keys, *BOUNDS), "rw_lacking_")
            beside = lacking.select(*others((*spec.keys, *BOUNDS), "rw_lacking_"))
            rest = counted.where(F.col(IS_FINAL)).join(beside, places, "left_anti")
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
        keep_late(job, staged, records, final, read_to)
    keep_quarantined(job, read)


def _not_computed(
    job: Job, published: DataFrame, records: DataFrame, final: Final, read_to: Mapping[int, int]
) -> DataFrame:
    """The staged windows that were final and are not published: they give way, unless a new record lies in them.

    A record that was read before, and lies in another window now, belongs to the one that was final.
    """
    names = (*job.spec.keys, *BOUNDS)
    ends = {"window_start": BOUNDS[0], "window_end": BOUNDS[1]}
    bounds = {own: F.unix_millis(name) for name, own in ends.items()}
    staged = job.staging.rows().withColumns(bounds)
    chosen = staged.where(final.is_final(F.col(BOUNDS[1]), F.lit(None).cast("bigint")))
    known = published.withColumns(bounds).select(*others(names, "rw_known_")).distinct()
    chosen = chosen.join(known, same(names, "rw_known_"), "left_anti")
    if not job.spec.has_sessions:
        new = records.where(~F.coalesce(F.col(OFFSET) < end_offset(read_to), F.lit(False)))
        chosen = chosen.join(pairs_of(new, job.spec), same(names), "left_anti")
    return chosen.drop(*BOUNDS).withColumns({COVERS: F.lit(False), GIVES_WAY: F.lit(True)})


def _published(job: Job, staged: StagedRange) -> DataFrame:
    """The windows in scope as they were published last; what somebody else has done to them since does not count."""
    rows = job.published_table.last_published() if staged.repairs else job.published_table.current()
    return publication_of(job, staged).in_scope(rows)


def _late(job: Job) -> DataFrame | None:
    """The late records that the run has staged, with the number of windows that each was too late for."""
    return job.staging.rows(StagedPart.LATE) if job.is_faithful and job.staging.has(StagedPart.LATE) else None


def _kept(published: DataFrame, wanted: DataFrame, keys: Sequence[str], *, covers: bool) -> DataFrame:
    """The rows of windows that stay, as they are staged: with the values that are published.

    Of the records that came since, those that were too late are dropped, and the others not counted: so a window goes
    on saying how many it ever had. `wanted` says of each window whether it lacks records (`_LACKS`).
    """
    chosen = wanted.select(*others((*keys, *BOUNDS)), LATER, MISSED, _LACKS)
    bounds = [F.unix_millis(name) == F.col(f"{OTHER}{own}") for name, own in zip((START, END), BOUNDS, strict=True)]
    not_counted = F.coalesce(NOT_COUNTED, F.lit(0)) if NOT_COUNTED in published.columns else F.lit(0)
    state = F.when(F.col(_LACKS), F.lit(HISTORY_GONE)).otherwise(F.col(STATE)) if STATE in published.columns else None
    there: dict[str, Column] = {NOT_COUNTED: (not_counted + F.col(LATER) - F.col(MISSED)).cast("long")}
    if DROPPED in published.columns:  # complete values alone drop none
        there[DROPPED] = F.col(DROPPED) + F.col(MISSED)
    if state is not None:
        there[STATE] = state
    rows = published.join(chosen, [*same(keys), *bounds]).withColumns(
        {**there, COVERS: F.lit(covers), GIVES_WAY: F.lit(False)}
    )
    made_of = F.col("as_of") if "as_of" in rows.columns else F.lit(None).cast("string")
    columns = [c for c in dict.fromkeys((*published.columns, NOT_COUNTED, COVERS, GIVES_WAY)) if c not in FACTS.names]
    return rows.select(*quoted(columns), made_of.alias(MADE_OF))


def _stage(job: Job, kept: DataFrame) -> None:
    with job.stage("kept windows", "records that they were made of are gone"):
        job.staging.write(0, kept, StagedPart.KEPT)


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
    """The definition from what the ledger keeps of it, over the history as this run's definition names it.

    An input of a union that went since is named as it was.
    """
    try:
        known = json.loads(canonical_json or "")
        now = job.pipeline.model_dump(mode="json", by_alias=True, include={"name", "history", "output"})
        there = {one["name"]: one for one in now["history"].get("of", ())}
        if there and "of" in known["history"]:
            of = [there.get(one["name"], one) for one in known["history"]["of"]]
            now["history"] = {**now["history"], "of": of}
        return Pipeline.model_validate(known | now)
    except ValueError:
        return None


def _records_of(job: Job, definition: Pipeline) -> DataFrame:
    """The good records of the run's history as an earlier definition read them.

    Those of an input of a union that went since are there as far as its history is; the run has no ends for them.
    """
    plan, names, now = job.plan, names_of(definition), names_of(job.pipeline)
    pins = plan.pins
    if names != now:
        known = dict(zip(now, pins.inputs, strict=True))
        pins = replace(pins, inputs=tuple(known.get(name, Pins()) for name in names))
    records = good(canonical(open_history(job.spark, definition, pins), definition))
    if not plan.cuts:
        return records
    went = [number for number, name in enumerate(names) if name not in now]
    is_of_these = F.floor(F.col(PARTITION) / F.lit(BLOCK)).isin(went)
    return cut_at(records.where(~is_of_these), plan.as_of).unionByName(records.where(is_of_these))


def _cannot_keep(job: Job) -> HistoryError:
    return HistoryError(
        "records are gone that published windows were made of, and the definition has other keys than they have: they "
        "can neither be computed again nor kept beside the new ones",
        job.result.tables.windows,
        "Write to another table (output.table), or keep the keys.",
    )
