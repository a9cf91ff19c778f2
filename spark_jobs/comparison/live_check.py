"""Does the section `live:` fit what the live job emitted? Looks at a sample of rows beside the history's windows.

The reference is what the history gives without any watermark (the complete values): which windows there are, and about
what is in them. Late records make single values differ, so shares count here, not single rows. Each way in which the
bounds could have been meant (`Reading`) is tried, and the one under which the values agree best is believed.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from spark_jobs.comparison.emitted import OFFSETS, EmittedRows, emitted_name
from spark_jobs.comparison.join_keys import key_types
from spark_jobs.comparison.live_findings import Finding, LiveSample, findings_of
from spark_jobs.comparison.live_readings import Reading, readings_of
from spark_jobs.comparison.verdicts import same
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import Deployed
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.rounding import rounding_name, with_bounds
from spark_jobs.replay.spec import Mode, complete_name
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import good, reading
from spark_jobs.spark.cached import CachedFrames

_ID, _READING, _KEYS = "rw_id", "rw_reading", "rw_keys"
_CANDIDATE = "rw_candidate"


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """What a sample of the emitted rows says about the section `live:`."""

    pipeline: str
    emitted: str
    """Where the rows lie."""
    rows: int
    """How many of them were looked at."""
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        return not any(finding.is_problem for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        findings = [finding.to_dict() for finding in self.findings]
        return {
            "pipeline": self.pipeline, "emitted": self.emitted, "rows": self.rows, "fits": self.fits,
            "findings": findings,
        }  # fmt: skip


def check_live(spark: SparkSession, deployed: Deployed, progress: Progress, *, rows: int) -> LiveCheck:
    """Look at up to `rows` rows that a deployment emitted. Reads the history once, without a timeline.

    Raises:
        DefinitionError: there is no section `live:`, or a column that it names does not exist.
        SourceError: the emitted rows or the history cannot be read.
    """
    pipeline = deployed.pipeline
    with ExitStack() as resources:
        with progress.stage("plan", pipeline.name):
            plan, records = resources.enter_context(planned_records(spark, pipeline, mode=Mode.BOTH))
        resources.enter_context(reading(plan.pipeline))
        cached = resources.enter_context(CachedFrames())
        replay = resources.enter_context(complete_windows(plan, pipeline, records))
        types = key_types(records.schema, tuple(pipeline.keys))
        with progress.stage("emitted", "a sample of what the live job emitted"):
            emitted = EmittedRows(spark, pipeline, types, cached)
        with progress.stage("check", "the sample beside the history's windows"):
            return look_at(emitted, replay.windows(plan.span), plan, rows, deployed)


def complete_windows(plan: Plan, pipeline: Pipeline, records: DataFrame) -> Replay:
    """The replay that gives the windows over all records, whatever was late, with the bounds of rounded values."""
    usable = good(records)
    spec = spec_of_plan(records.sparkSession, pipeline, plan, Mode.COMPLETE)
    return Replay(History(usable, plan.event_times, plan.processing_time_end), with_bounds(spec, usable))


def look_at(
    emitted: EmittedRows, complete: DataFrame, plan: Plan, rows: int, deployed: Deployed | None = None
) -> LiveCheck:
    """The findings for a sample of `rows` rows; `complete` has the windows of `complete_windows`."""
    pipeline = emitted.pipeline
    frame = emitted.sample(rows, deployed).withColumn(OFFSETS, F.to_json(OFFSETS))
    table = frame.toArrow()
    taken = table.append_column(_ID, [list(range(table.num_rows))])
    readings = readings_of(pipeline)
    spark = complete.sparkSession
    found, known, some = pd.DataFrame(), 1.0, ()
    if table.num_rows:
        local = spark.createDataFrame(taken, schema=StructType([*frame.schema, StructField(_ID, LongType())]))
        found = _beside(emitted, local, complete, readings)
        if found.empty:  # the windows are aggregated again only where the keys have to explain it
            known, some = _known_keys(local, complete, pipeline), _some_keys(complete, pipeline)
    sample = LiveSample(
        pipeline=pipeline,
        rows=taken.to_pandas(),
        found=found,
        readings=readings,
        values=emitted.values,
        known_keys=known,
        history_keys=some,
        history_times=plan.event_times,
        end_offsets=plan.as_of,
        in_topic=emitted.opened.topic is not None,
    )
    return LiveCheck(pipeline.name, emitted.opened.description, table.num_rows, findings_of(sample))


def _beside(
    emitted: EmittedRows, sample: DataFrame, complete: DataFrame, readings: tuple[Reading, ...]
) -> pd.DataFrame:
    """The history's windows that each row can mean, under each reading.

    Columns: `rw_id`, `rw_reading` (its number), `rw_same_keys`, `complete_end` (epoch ms), and for each value
    `rw_same_<name>` and `<name>__complete`.
    """
    pipeline = emitted.pipeline
    tries = F.array(
        *(F.struct(F.lit(n).alias("n"), one.start_of(F.col(START)).alias("start")) for n, one in enumerate(readings))
    )
    tried = sample.withColumn(_KEYS, _plain(pipeline)).withColumn("rw_try", F.explode(tries))
    tried = tried.withColumn(_CANDIDATE, F.col("rw_try.start")).withColumn(_READING, F.col("rw_try.n"))
    there = complete.select(
        _plain(pipeline).alias("rw_their_keys"),
        F.struct(*(f"`{key}`" for key in pipeline.keys)).alias("rw_their_own"),
        F.col(START).alias("complete_start"),
        F.col(END).alias("complete_end"),
        *(F.col(complete_name(name)) for name in pipeline.aggregates),
        *(F.col(bound) for bound in map(_bound_of, pipeline.aggregates) if bound in complete.columns),
    )
    mine = F.struct(*(f"`{key}`" for key in pipeline.keys))
    meets = [F.col(_KEYS) == F.col("rw_their_keys"), F.col(_CANDIDATE) == F.col("complete_start")]
    joined = there.join(F.broadcast(tried), meets)
    types = {field.name: field.dataType for field in joined.schema}
    live = emitted.live

    def equal(name: str) -> Column:
        left, right, bound = emitted_name(name), complete_name(name), _bound_of(name)
        rounding = F.col(bound) if bound in types else None
        return same(F.col(left), F.col(right), types[left], types[right], live.tolerance.get(name), rounding)

    chosen = joined.select(
        _ID,
        _READING,
        mine.eqNullSafe(F.col("rw_their_own")).alias("rw_same_keys"),
        "complete_end",
        *(equal(name).alias(f"rw_same_{name}") for name in emitted.values),
        *(F.col(complete_name(name)).cast("double") for name in pipeline.aggregates if _is_number(types, name)),
    )
    return chosen.toPandas()


def _bound_of(aggregate: str) -> str:
    return complete_name(rounding_name(aggregate))


def _is_number(types: dict[str, Any], name: str) -> bool:
    return types[complete_name(name)].simpleString().partition("(")[0] in {
        "tinyint", "smallint", "int", "bigint", "float", "double", "decimal",
    }  # fmt: skip


def _plain(pipeline: Pipeline) -> Column:
    """The keys without case and surrounding spaces, as one text."""
    texts = (F.lower(F.trim(F.col(f"`{key}`").cast("string"))) for key in pipeline.keys)
    return F.to_json(F.array(*(F.coalesce(text, F.lit("\0")) for text in texts)))


def _known_keys(sample: DataFrame, complete: DataFrame, pipeline: Pipeline) -> float:
    """The share of the sample's keys that the history has, whatever the window."""
    keys = sample.select(_plain(pipeline).alias(_KEYS)).distinct()
    there = complete.select(_plain(pipeline).alias(_KEYS)).join(F.broadcast(keys), _KEYS, "left_semi").distinct()
    return there.count() / max(1, keys.count())


def _some_keys(complete: DataFrame, pipeline: Pipeline) -> tuple[dict[str, Any], ...]:
    """A few of the history's keys, to show."""
    some = complete.select(*(f"`{key}`" for key in pipeline.keys)).limit(1000).distinct().limit(5).collect()
    return tuple(row.asDict() for row in some)
