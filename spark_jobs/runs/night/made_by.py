"""What published windows were made by: the definition of their run, and the rows that it looked records up in."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.publication import Cause
from spark_jobs.lakehouse.tables import quoted
from spark_jobs.pins import PinnedSnapshot, Pins
from spark_jobs.replay.columns import HISTORY_GONE, PARTITION, STATE
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.life.documents import Request, recorded_definition
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.lacking import BOUNDS, bounds_of, pairs_of, within
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.job import Job
from spark_jobs.sources import canonical, cut_at, good, names_of, open_history, pin_lookup
from spark_jobs.spark.joins import OTHER, others, same

_MADE_BY = "rw_made_by"


@dataclass(frozen=True, slots=True)
class MadeBy:
    """What runs read the history by, where that is not what the run at hand does.

    So it is taken to be where it is not kept any more.

    Attributes:
        runs: Their ids.
        definition: Their definition; None: that of the run at hand.
        lookup: The rows that they looked records up in; None: those of the run at hand.
    """

    runs: tuple[str, ...]
    definition: Pipeline | None
    lookup: PinnedSnapshot | None

    @property
    def is_other(self) -> bool:
        """Whether they may have put a record into another window than the run at hand does."""
        return self.definition is not None or self.lookup is not None

    def spec(self, job: Job) -> ReplaySpec:
        """How they made windows."""
        if self.definition is None:
            return job.spec
        return spec_of(self.definition, [p.partition for p in job.plan.partitions])

    def records(self, job: Job) -> DataFrame:
        """The good records of the run's history as they read them.

        Those of an input of a union that went since are there as far as its history is; the run has no ends for them.
        """
        definition, plan = self.definition or job.pipeline, job.plan
        names, now = names_of(definition), names_of(job.pipeline)
        pins = replace(plan.pins, lookup=self.lookup or plan.lookup)
        if names != now:
            known = dict(zip(now, pins.inputs, strict=True))
            pins = replace(pins, inputs=tuple(known.get(name, Pins()) for name in names))
        records = good(canonical(open_history(job.spark, definition, pins), definition))
        if not plan.cuts:
            return records
        went = [number for number, name in enumerate(names) if name not in now]
        is_of_these = F.floor(F.col(PARTITION) / F.lit(BLOCK)).isin(went)
        return cut_at(records.where(~is_of_these), plan.as_of).unionByName(records.where(is_of_these))


def with_makers(job: Job, published: DataFrame) -> DataFrame:
    """The windows with the run that has computed them as `run_id`: one that keeps its value was computed before."""
    names = (*job.spec.keys, "window_start", "window_end")
    if not {STATE, *names} <= {*published.columns} or not _others_made_some(job):
        return published
    kept = F.col(STATE).eqNullSafe(HISTORY_GONE)
    revisions = job.published_table.revisions().where(~kept & (F.col("cause") != F.lit(Cause.RETRACTION.value)))
    made = revisions.groupBy(*others(names)).agg(F.max_by("run_id", "revision").alias(_MADE_BY))
    beside = published.where(kept).join(made, same(names), "left").select("*", F.col(_MADE_BY))
    run_id = F.coalesce(F.col(_MADE_BY), F.col("run_id"))
    ours = beside.withColumn("run_id", run_id).select(*quoted(published.columns))
    return published.where(~kept).unionByName(ours)


def _others_made_some(job: Job) -> bool:
    """Whether a run with another definition, or one with other rows to look up in, may have made a window."""
    is_other = F.col("definition_hash") != F.lit(job.plan.definition_hash)
    return job.plan.lookup is not None or not job.ledger.published_runs().where(is_other).isEmpty()


def made_by(job: Job, published: DataFrame, records: DataFrame) -> list[MadeBy]:
    """What has made these windows. `records`: the good ones, as the run at hand reads them."""
    runs = sorted(row[0] for row in published.select("run_id").distinct().collect())
    rows = job.ledger.published_runs().where(F.col("run_id").isin(runs))
    known = {row[0]: row for row in rows.select("run_id", "definition_hash", "definition").collect()}
    lookups, definitions = _lookups(job, published, records), dict[str, Pipeline]()
    found = defaultdict[tuple[str | None, PinnedSnapshot | None], list[str]](list)
    for run_id in runs:
        kind = known[run_id][1] if run_id in known else None
        if kind not in (None, job.plan.definition_hash, *definitions):
            definition = _recorded(run_id) or _rebuilt(job, known[run_id][2])
            definitions |= {} if definition is None else {kind: definition}
        found[kind if kind in definitions else None, lookups.get(run_id)].append(run_id)
    return [MadeBy(tuple(own), definitions.get(kind or ""), lookup) for (kind, lookup), own in found.items()]


def _lookups(job: Job, published: DataFrame, records: DataFrame) -> dict[str, PinnedSnapshot]:
    """The rows that runs looked records up in, where they are others than now, and are there still.

    Asked are the runs whose windows can lack some of their records and have others: what of a window is there says
    which rows it was made with.
    """
    if job.plan.lookup is None:
        return {}
    near = within(published.select("run_id", *bounds_of()), job.plan.reading, job.spec.windows)
    if not job.spec.has_sessions:
        there = pairs_of(records, job.spec).select(*(F.col(f"{OTHER}{name}").alias(name) for name in BOUNDS))
        near = near.join(there.distinct(), [*BOUNDS], "left_semi")
    found = dict[str, PinnedSnapshot]()
    for (run_id,) in near.select("run_id").distinct().collect():
        with suppress(RewindowError):
            plan = Plan.read(RunStore.configured().folder(run_id))
            if plan is not None and plan.lookup not in (None, job.plan.lookup):
                found[run_id] = pin_lookup(job.spark, job.pipeline, plan.lookup) or plan.lookup
    return found


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
