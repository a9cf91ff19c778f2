"""Windows that keep their values, because records that they were made of are gone.

A window is computed again from what there is. Where retention, a lifecycle rule or compaction has removed some of it,
that would be less than what is published. A window keeps its value for one reason: positions that were read are gone,
and by its event times it can hold one of them. A record whose key, event time, row of a lookup or filter has changed is
there all the same, so its window keeps nothing. What was final below the first record that is still there stays too:
see `spark_jobs.runs.night.final`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import quoted
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import (
    DROPPED,
    HISTORY_GONE,
    NOT_COUNTED,
    OFFSET,
    PARTITION,
    STATE,
    end_offset,
    records_in,
)
from spark_jobs.replay.spec import complete_name
from spark_jobs.runs.life.documents import StagedRange
from spark_jobs.runs.night.final import Final
from spark_jobs.runs.night.lacking import (
    BOUNDS,
    FOUND,
    IS_FINAL,
    LATER,
    MISSED,
    TOTAL,
    bounds_of,
    counted_windows,
    pairs_of,
    refuse_moved,
    refuse_twice,
    windows_in,
    with_counts,
    with_joined,
    within,
)
from spark_jobs.runs.night.late_kept import keep_late, keep_quarantined
from spark_jobs.runs.night.made_by import MadeBy, made_by, with_makers
from spark_jobs.runs.night.reading import Empty
from spark_jobs.runs.night.stored import read_before
from spark_jobs.runs.work.difference import COVERS, GIVES_WAY, MADE_OF, publication_of
from spark_jobs.runs.work.job import Job
from spark_jobs.spark.joins import OTHER, others, same

_LACKS, _COMPLETE = "rw_lacks", "rw_complete"


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
    that another definition has made, or other rows of the lookup, is looked at by these, which say what it was made of.

    Raises HistoryError where such a window has other keys than the run's windows, and where windows have lost more
    records than are gone: then some of their records are there, in other windows.
    """
    reading = job.plan.reading
    if staged.base is None or job.plan.another_log or not reading.has_gone:
        return
    before = read_before(job.spark, job.result.tables, job.pipeline, but=job.result.run_id)
    published = with_makers(job, _published(job, staged))
    final = Final.of(job.pipeline, job.spec, reading, published)
    empty = None if before is None else before.reading.empty
    found = [_kept_of(job, made, published, records, empty, final) for made in made_by(job, published, records)]
    refuse_moved(_together(part.lacking for part in found), reading, job.spec.windows, job.result.tables.windows)
    kept = _together(part.rows for part in found)
    if kept is not None:
        read_to = {} if before is None else before.reading.ends
        if final.is_there:
            kept = kept.unionByName(_not_computed(job, published, records, final, read_to), allowMissingColumns=True)
        if (held := _together(part.held for part in found if part.held is not None)) is not None:
            kept = kept.unionByName(_held_elsewhere(job, held, records, kept), allowMissingColumns=True)
        _stage(job, kept)
        keep_late(job, staged, records, final, read_to)
    keep_quarantined(job, read)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of the windows that some runs have made.

    Attributes:
        rows: The windows, as they are staged; None: there is none, and they have other keys.
        lacking: Of those that lack records and were not final, `BOUNDS`, `TOTAL` and `FOUND`.
        held: Where these runs may have put a record into another window: those of the windows that lack some, as pairs.
    """

    rows: DataFrame | None
    lacking: DataFrame
    held: DataFrame | None


def _kept_of(
    job: Job, made: MadeBy, published: DataFrame, records: DataFrame, empty: Empty | None, final: Final
) -> _Kept:
    rows, spec = published.where(F.col("run_id").isin(list(made.runs))), made.spec(job)
    own = made.records(job) if made.is_other else records
    covers = spec.has_sessions or (made.definition is not None and made.definition.window != job.pipeline.window)
    counted = counted_windows(rows, own, spec, empty, final, _late(job))
    lacking = within(counted.where(F.col(FOUND) < F.col(TOTAL)), job.plan.reading, spec.windows)
    wanted, names = lacking.withColumn(_LACKS, F.lit(True)), (*spec.keys, *BOUNDS)
    if final.is_there:
        beside = lacking.select(*others(names, "rw_lacking_"))
        rest = counted.where(F.col(IS_FINAL)).join(beside, same(names, "rw_lacking_"), "left_anti")
        wanted = wanted.unionByName(rest.withColumn(_LACKS, F.lit(False)))
    not_final = lacking.where(~F.col(IS_FINAL)).select(*BOUNDS, TOTAL, FOUND)
    if set(spec.keys) != set(job.spec.keys):
        if not wanted.isEmpty():
            raise _cannot_keep(job)
        return _Kept(None, not_final, None)
    is_here = lacking.select(*quoted(names))
    held = pairs_of(own, spec).join(is_here, same(names), "left_semi") if made.is_other and not covers else None
    if final.is_there:
        wanted = _with_complete(job, wanted, names)
    return _Kept(_kept(rows, wanted, spec.keys, covers=covers), not_final, held)


def _with_complete(job: Job, wanted: DataFrame, names: Sequence[str]) -> DataFrame:
    """Add the complete values (`_COMPLETE`) of the windows that were final, lack no record and have new ones.

    Their faithful values stay, since a new record came too late for them. It is in the complete values that the run has
    computed, where these count each of the window's records.
    """
    staged = job.staging.rows()
    columns = [c for c in map(complete_name, job.spec.aggregates) if c in staged.columns]
    if not columns:
        return wanted
    values = F.max_by(F.struct(*quoted(columns)), records_in(staged)).alias(_COMPLETE)
    computed = (
        staged.select("*", *bounds_of()).groupBy(*others(names)).agg(values, F.max(records_in(staged)).alias("n"))
    )
    is_it = ~F.col(_LACKS) & (F.col(LATER) > 0) & (F.col("n") == F.col(TOTAL) + F.col(LATER))
    return wanted.join(computed, same(names), "left").select(
        *quoted(wanted.columns), F.when(is_it, F.col(_COMPLETE)).alias(_COMPLETE)
    )


def _together(frames: Iterable[DataFrame | None]) -> DataFrame | None:
    """The rows of all frames; None: there is no frame."""
    there = [frame for frame in frames if frame is not None]
    return functools.reduce(DataFrame.unionByName, there) if there else None


def _held_elsewhere(job: Job, held: DataFrame, records: DataFrame, kept: DataFrame) -> DataFrame:
    """The staged windows whose records kept windows `held` where they were made: they give way, none counts twice.

    Raises HistoryError where such a window has other records too.
    """
    names, place = (*job.spec.keys, *BOUNDS), [*(f"{OTHER}{name}" for name in BOUNDS), PARTITION, OFFSET]
    there = held.select(*place).distinct().withColumn("rw_held", F.lit(True))
    pairs = pairs_of(records, job.spec).join(there, place, "left")
    counted = pairs.groupBy(*(f"`{OTHER}{name}`" for name in names)).agg(
        F.count("rw_held").alias(TOTAL), F.count_if(F.col("rw_held").isNull()).alias(LATER)
    )
    stays = kept.select(*quoted(job.spec.keys), *bounds_of())
    moved = counted.where(F.col(TOTAL) > 0).join(stays, same(names), "left_anti")
    refuse_twice(moved, job.result.tables.windows)
    staged = job.staging.rows()
    chosen = staged.select("*", *bounds_of()).join(moved, same(names), "left_semi")
    return chosen.drop(*BOUNDS).withColumns({COVERS: F.lit(False), GIVES_WAY: F.lit(True)})


def _not_computed(
    job: Job, published: DataFrame, records: DataFrame, final: Final, read_to: Mapping[int, int]
) -> DataFrame:
    """The staged windows that were final and are not published: they give way, unless a new record lies in them.

    A record that was read before, and lies in another window now, belongs to the one that was final.
    """
    names = (*job.spec.keys, *BOUNDS)
    staged = job.staging.rows()
    staged = staged.select("*", *bounds_of())
    chosen = staged.where(final.is_final(F.col(BOUNDS[1]), F.lit(None).cast("bigint")))
    known = published.select("*", *bounds_of()).select(*others(names, "rw_known_")).distinct()
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
    on saying how many it ever had. `wanted` says of each window whether it lacks records (`_LACKS`), and may have
    complete values that take the place of those that are published (`_COMPLETE`).
    """
    complete = [_COMPLETE] if _COMPLETE in wanted.columns else []
    chosen = wanted.select(*others((*keys, *BOUNDS)), LATER, MISSED, _LACKS, *complete)
    bounds = [F.unix_millis(name) == F.col(f"{OTHER}{own}") for name, own in zip((START, END), BOUNDS, strict=True)]
    not_counted = F.coalesce(NOT_COUNTED, F.lit(0)) if NOT_COUNTED in published.columns else F.lit(0)
    state = F.when(F.col(_LACKS), F.lit(HISTORY_GONE)).otherwise(F.col(STATE)) if STATE in published.columns else None
    there: dict[str, Column] = {NOT_COUNTED: (not_counted + F.col(LATER) - F.col(MISSED)).cast("long")}
    if DROPPED in published.columns:  # complete values alone drop none
        there[DROPPED] = F.col(DROPPED) + F.col(MISSED)
    if state is not None:
        there[STATE] = state
    if complete:
        fields = [f for f in wanted.select(f"{_COMPLETE}.*").columns if f in published.columns]
        there |= {
            f: F.when(F.col(_COMPLETE).isNotNull(), F.col(_COMPLETE)[f]).otherwise(F.col(f"`{f}`")) for f in fields
        }
    rows = published.join(chosen, [*same(keys), *bounds]).withColumns(
        {**there, COVERS: F.lit(covers), GIVES_WAY: F.lit(False)}
    )
    made_of = F.col("as_of") if "as_of" in rows.columns else F.lit(None).cast("string")
    columns = [c for c in dict.fromkeys((*published.columns, NOT_COUNTED, COVERS, GIVES_WAY)) if c not in FACTS.names]
    return rows.select(*quoted(columns), made_of.alias(MADE_OF))


def _stage(job: Job, kept: DataFrame) -> None:
    with job.stage("kept windows", "records that they were made of are gone"):
        job.staging.write(0, kept, StagedPart.KEPT)


def _cannot_keep(job: Job) -> HistoryError:
    return HistoryError(
        "records are gone that published windows were made of, and the definition has other keys than they have: they "
        "can neither be computed again nor kept beside the new ones",
        job.result.tables.windows,
        "Write to another table (output.table), or keep the keys.",
    )
