"""`rewindow demo`: the main job on real flights, compared with what Flink emitted for the same data."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from spark_jobs.cli.options import PIPELINES
from spark_jobs.cli.output import print_plan, print_result
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import RewindowError, SourceError
from spark_jobs.plan import planned_records
from spark_jobs.progress import Progress, progress_for
from spark_jobs.run import execute
from spark_jobs.services.kafka_broker import KafkaBroker
from spark_jobs.services.kafka_sample import TOPIC, load_flights
from spark_jobs.session import rewindow_home, spark_session
from spark_jobs.stages import RunResult

PIPELINE = PIPELINES / "departures_kafka.yaml"
SAMPLE = Path("tests/data/flights")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows (windows, late records) of ours and of Flink's, and how many are in one of the two only."""

    ours: int
    flinks: int
    only_ours: int
    only_flinks: int

    @property
    def equal(self) -> bool:
        return self.only_ours == self.only_flinks == 0


def compare(ours: DataFrame, flinks: DataFrame) -> Comparison:
    """Multisets of rows, column by column."""
    return Comparison(
        ours.count(), flinks.count(), ours.exceptAll(flinks).count(), flinks.exceptAll(ours).count()
    )  # fmt: skip


def emitted_by_flink(spark: SparkSession, sample: Path) -> DataFrame:
    """What Flink's hourly job emitted: carrier, window, count, sum, minimum and maximum of the distance."""
    emitted = spark.read.parquet(str(sample / "emitted_hourly.parquet"))
    return emitted.select("key", "window_start", "window_end", "count", "sum", "min", "max")


def faithful_windows(spark: SparkSession, result: RunResult) -> DataFrame:
    """The run's faithful windows in the same columns."""
    fired = spark.table(result.tables.windows).where(F.col("pane").isNotNull())
    return fired.select("carrier", "window_start", "window_end", "flights", "distance", "shortest", "longest")


def run_demo(console: Console, errors: Console) -> None:
    """Start a broker, load the sample into a topic, plan, run, compare. Raises SourceError outside a checkout."""
    if not PIPELINE.exists() or not SAMPLE.is_dir():
        raise SourceError(
            "the flights sample is not here", str(SAMPLE), "Run the demo in a checkout's root folder: make demo."
        )
    progress = progress_for(errors)
    console.print("Three months of real departures from New York, replayed as the hourly Flink job saw them.\n")
    with KafkaBroker(rewindow_home() / "demo-kafka") as broker:
        with progress.stage("kafka", f"a broker at {broker.servers}, with the departures in topic {TOPIC}"):
            load_flights(broker)
        pipeline = load_pipeline(PIPELINE, {**os.environ, "REWINDOW_KAFKA": broker.servers})
        spark = spark_session("rewindow demo")
        with ExitStack() as open_records:
            with progress.stage("plan", str(PIPELINE)):
                plan, records = open_records.enter_context(planned_records(spark, pipeline))
            print_plan(plan)
            result = execute(spark, pipeline, plan, progress, records=records)
    print_result(result)
    _compare(console, spark, progress, result)


def _compare(console: Console, spark: SparkSession, progress: Progress, result: RunResult) -> None:
    with progress.stage("compare", "with what Flink 2.3.0 emitted"):
        windows = compare(faithful_windows(spark, result), emitted_by_flink(spark, SAMPLE))
        late = compare(
            spark.table(result.tables.late).select("partition", "offset"),
            spark.read.parquet(str(SAMPLE / "late_hourly.parquet")).select("partition", "offset"),
        )
    for name, seen in (("windows", windows), ("late records", late)):
        verdict = (
            "[green]identical[/]"
            if seen.equal
            else f"[red]{seen.only_ours} only ours, {seen.only_flinks} only Flink's[/]"
        )
        console.print(f"{name}: {seen.ours:,} of ours, {seen.flinks:,} of Flink's: {verdict}")
    differ = spark.table(result.tables.windows).where("flights__complete <> coalesce(flights, 0)").count()
    console.print(
        f"{differ:,} windows would have other values had nothing been late: see flights beside flights__complete.\n"
        f"The tables lie under {rewindow_home()} (an Iceberg catalog on SQLite).",
        soft_wrap=True,
    )
    if not (windows.equal and late.equal):
        raise RewindowError("the replay differs from what Flink emitted", str(SAMPLE), "Please report this.")
