"""What a run's checks and its report look at: all that is known before anything is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.life.documents import NotStaged
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import came_since
from spark_jobs.spark.joins import others, same

BEFORE = "rw_before_"
"""Before the names of what was published."""


@dataclass(frozen=True)
class StagedRun:
    """One staged run.

    `staged`: the windows that it computed, in the columns of the published table (keys, `window_start`, `window_end`,
    aggregates, their `__complete` twins, `pane`, `state`, ... as in docs/tables.md). `changes`: the revisions that
    publishing would add, with `rw_change` (a `WindowChange`) and `cause`; see `PublishedTable.changes`.
    `before`: the published windows that they are compared with, in the published table's columns.
    `late`: rows of the late table.
    `records`: canonical records up to the end offsets (`spark_jobs.replay.columns`), good ones only; a scan of the
    history each time it is used. `timeline`: None where the run is `complete` only. `identity`: the columns that tell
    one window (or pane) from another. `kind`: backfill or reconcile. `verdicts`: on the live job's windows; None where
    the run has not compared them. `is_distinct`: no two staged rows have the same `identity`, which is known without
    reading them; False: only reading them can show it. `former`: columns that told published rows apart before.
    `may_repeat`: several rows of `before` can have one identity. `not_staged`: what the run did not look at.
    `deduplicated`: the records without duplicates; None: the live job drops none. `since`: the end offsets of the run
    that this one goes on from; None: it read all records itself.
    """

    spark: SparkSession
    pipeline: Pipeline
    plan: Plan
    spec: ReplaySpec
    kind: RunKind
    run_id: str
    identity: tuple[str, ...]
    staged: DataFrame
    changes: DataFrame
    before: DataFrame
    late: DataFrame | None
    records: DataFrame
    timeline: Timeline | None
    verdicts: Verdicts | None = None
    is_distinct: bool = False
    former: tuple[str, ...] = ()
    may_repeat: bool = False
    not_staged: NotStaged = field(default_factory=NotStaged)
    deduplicated: DataFrame | None = None
    since: Mapping[int, int] | None = None

    @property
    def at_windows(self) -> DataFrame:
        """The records without those that the live job drops as duplicates before its windows."""
        return self.records if self.deduplicated is None else self.deduplicated

    @property
    def is_new(self) -> Column:
        """Whether the run read a record as new: `late` has rows of such records only."""
        return F.lit(True) if self.since is None else came_since(self.since)


def with_before(evidence: StagedRun, changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """`changes` of the run, joined with the values before of these columns, as `rw_before_<column>`."""
    identity = (*evidence.identity, *evidence.former)
    one_each = evidence.before.dropDuplicates(list(identity)) if evidence.may_repeat else evidence.before
    before = one_each.select(*others(identity), *(F.col(f"`{c}`").alias(f"{BEFORE}{c}") for c in columns))
    return changes.join(before, same(identity), "left")
