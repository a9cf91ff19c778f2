"""The replay of a plan, by what the live job had recorded up to the plan's end offsets."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.engines import live_engine
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.runs.planning.plan_document import Plan


def spec_of_plan(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, mode: Mode, panes: Panes | None = None
) -> ReplaySpec:
    """The replay of a plan; `panes` overrides the definition's."""
    found = live_engine(pipeline).recorded(spark, pipeline, plan.as_of, plan.processing_time_end)
    recorded = None if found is None else found.rules_input
    return spec_of(pipeline, [p.partition for p in plan.partitions], mode=mode, panes=panes, recorded=recorded)


def recorded_ends(spark: SparkSession, pipeline: Pipeline, as_of: Mapping[int, int] | None) -> Mapping[int, int] | None:
    """The end offsets, moved back to where the live job's own recorded reading ends, where it has one."""
    recorded = live_engine(pipeline).recorded(spark, pipeline, as_of)
    return as_of if recorded is None else recorded.ends
