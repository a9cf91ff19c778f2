"""`rewindow demo`: the main job through Airflow, on real flights in a real topic, compared with what Flink emitted."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from spark_jobs.definition import load_pipeline
from spark_jobs.devtools.services.airflow import Airflow, DagRun
from spark_jobs.devtools.services.kafka_broker import KafkaBroker
from spark_jobs.devtools.services.kafka_sample import TOPIC, load_flights
from spark_jobs.errors import RewindowError, SourceError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.documents import Changes, Gate, Outcome, RunCounts
from spark_jobs.runs.progress import Progress, progress_for
from spark_jobs.runs.store import PAGE, RunStore
from spark_jobs.settings import Variable, settings
from spark_jobs.spark.jvm import SHORT_APPLICATIONS
from spark_jobs.spark.session import rewindow_home, spark_session

PIPELINE = Path("dags/pipelines/departures_kafka.yaml")
BROKERS_VARIABLE = "REWINDOW_KAFKA"
"""The environment variable from which the sample's pipeline takes its brokers."""
SAMPLE = Path("tests/data/flights")
FIRST_NIGHT = datetime(2013, 3, 25, tzinfo=UTC)
"""Records that arrived before are there when the backfill runs; the others come before the reconciliation."""
_RUN_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Comparison:
    """The number of rows (windows or late records) of each side, and of those that only one side has."""

    ours: int
    flinks: int
    only_ours: int
    only_flinks: int

    @property
    def equal(self) -> bool:
        return self.only_ours == self.only_flinks == 0


def compare(ours: DataFrame, flinks: DataFrame) -> Comparison:
    """Compare two DataFrames as multisets of rows."""
    return Comparison(ours.count(), flinks.count(), ours.exceptAll(flinks).count(), flinks.exceptAll(ours).count())


def emitted_by_flink(spark: SparkSession, sample: Path) -> DataFrame:
    """The windows that Flink's hourly job emitted: carrier, window, count, sum, minimum and maximum of the distance."""
    emitted = spark.read.parquet(str(sample / "emitted_hourly.parquet"))
    return emitted.select("key", "window_start", "window_end", "count", "sum", "min", "max")


def faithful_windows(spark: SparkSession, tables: Tables) -> DataFrame:
    """The published faithful windows in the same columns."""
    fired = spark.table(tables.windows).where(F.col("pane").isNotNull())
    return fired.select("carrier", "window_start", "window_end", "flights", "distance", "shortest", "longest")


@contextmanager
def sample_services(
    home: Path, progress: Progress, *, port: int = 0, before: datetime | None = None
) -> Iterator[tuple[KafkaBroker, Airflow]]:
    """A broker with the flights in a topic, and an Airflow whose DAGs read it; their data lies under `home`."""
    if not PIPELINE.exists() or not SAMPLE.is_dir():
        raise SourceError(
            "the flights sample is not here", str(SAMPLE), "Run this in a checkout's root folder, as `make` does."
        )
    with KafkaBroker(home / "kafka") as broker:
        with progress.stage("kafka", f"a broker with real departures in topic {TOPIC}"):
            load_flights(broker, before=before)
        environ = {
            Variable.HOME: str(home),
            BROKERS_VARIABLE: broker.servers,
            Variable.JAVA_OPTIONS: settings().java_options or SHORT_APPLICATIONS,
        }
        airflow = Airflow(home / "airflow", project=Path.cwd(), port=port, environ=environ)
        with progress.stage("airflow", "scheduler, API server, DAG processor, triggerer"):
            airflow.start()
        try:
            yield broker, airflow
        finally:
            with progress.stage("stop", "Airflow and the broker"):
                airflow.stop()


def run_demo(console: Console, errors: Console) -> None:
    """Start a broker and an Airflow, backfill, reconcile what arrived later, compare; stop what was started."""
    progress = progress_for(errors)
    home = rewindow_home() / "demo"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    console.print(
        "Three months of real departures from New York, replayed through Airflow as the hourly Flink job saw them.\n"
    )
    with sample_services(home, progress, before=FIRST_NIGHT) as (broker, airflow):
        backfill = trigger(console, airflow, "backfill__departures_kafka", {"reason": "the demo"})
        with progress.stage("new records", "a week more of departures arrives in the topic, some of them late"):
            load_flights(broker)
        nightly = night(console, airflow, "reconcile__departures_kafka")
        environ = {**os.environ, Variable.HOME: str(home), BROKERS_VARIABLE: broker.servers}
        pipeline = load_pipeline(PIPELINE, environ)
    spark = spark_session("rewindow demo", home=home)
    for run in (backfill, nightly):
        _print_outcome(console, RunStore(str(home / "runs")), run)
    _compare(console, spark, progress, Tables.of(pipeline))
    console.print(
        f"The tables lie under {home}. Query them:\n"
        f'  {Variable.HOME}={home} .venv/bin/rewindow sql "SELECT * FROM {Tables.of(pipeline).windows} LIMIT 10"\n'
        "  make up     # the same Airflow, to look at and to click in",
        soft_wrap=True,
        highlight=False,
    )


def trigger(
    console: Console, airflow: Airflow, dag_id: str, form: Mapping[str, Any], *, ends_as: str = "success"
) -> DagRun:
    """Trigger a DAG as the UI does and wait for its end, printing each task.

    Raises RewindowError if it does not end as it should.
    """
    airflow.unpause(dag_id)
    run = airflow.trigger(dag_id, form)
    console.print(f"\n[bold]{dag_id}[/], triggered over the API as the UI does")
    return _watch(console, airflow, run, ends_as)


def night(console: Console, airflow: Airflow, dag_id: str) -> DagRun:
    """Unpause a DAG, so that the scheduler runs the latest night at once. Raises RewindowError if that fails."""
    airflow.unpause(dag_id)
    run = airflow.scheduled(dag_id)
    console.print(f"\n[bold]{dag_id}[/], run by the scheduler")
    return _watch(console, airflow, run)


def _watch(console: Console, airflow: Airflow, run: DagRun, ends_as: str = "success") -> DagRun:
    dag_id = run.dag_id

    def print_task(task: dict[str, Any]) -> None:
        label = task.get("rendered_map_index") or ""
        mark = {"success": "[green]ok[/]     ", "skipped": "[dim]skipped[/]"}.get(
            task["state"], f"[red]{task['state']}[/]"
        )
        seconds = f"{task['duration']:6.1f} s" if task["duration"] else ""
        console.print(f"  {mark} {task['task_id']:<10} {seconds}  [dim]{label}[/]", highlight=False)

    began = time.monotonic()
    state = airflow.wait(run, _RUN_SECONDS, on_end=print_task)
    console.print(f"  ended as {state} after {time.monotonic() - began:.1f} s", highlight=False)
    if state != ends_as:
        console.print(airflow.failures(run), markup=False)
        raise RewindowError(f"the run ended as {state}", dag_id, f"Airflow's log is {airflow.log}.")
    return run


def _print_outcome(console: Console, store: RunStore, run: DagRun) -> None:
    folder = store.folder(run_id_of(run.dag_id, run.run_id))
    outcome, changes, gate = Outcome.read(folder), Changes.read(folder) or Changes(), Gate.read(folder)
    counts = outcome.counts if outcome else RunCounts()
    changed = ", ".join(f"{count:,} {what}" for what, count in sorted(changes.counts.items())) or "nothing"
    results = gate.results if gate else ()
    console.print(
        f"\n[bold]{run.dag_id}[/]: {outcome and outcome.status.value}\n"
        f"  records {counts.records_read:,}, windows computed {counts.windows:,}, "
        f"on time {counts.pairs_on_time:,}, late {counts.records_late:,}\n"
        f"  windows {changed}\n"
        f"  gate {gate and gate.verdict}: {sum(r.success for r in results)} of {len(results)} expectations met\n"
        f"  report {folder.address(PAGE)}",
        soft_wrap=True,
        highlight=False,
    )


def _compare(console: Console, spark: SparkSession, progress: Progress, tables: Tables) -> None:
    with progress.stage("compare", "with what Flink 2.3.0 emitted"):
        windows = compare(faithful_windows(spark, tables), emitted_by_flink(spark, SAMPLE))
        late = compare(
            spark.table(tables.late).select("partition", "offset"),
            spark.read.parquet(str(SAMPLE / "late_hourly.parquet")).select("partition", "offset"),
        )
    console.print()
    for name, seen in (("windows", windows), ("late records", late)):
        verdict = (
            "[green]identical[/]"
            if seen.equal
            else f"[red]{seen.only_ours} only ours, {seen.only_flinks} only Flink's[/]"
        )
        console.print(f"{name}: {seen.ours:,} of ours, {seen.flinks:,} of Flink's: {verdict}")
    differ = spark.table(tables.windows).where("flights__complete <> coalesce(flights, 0)").count()
    console.print(
        f"{differ:,} windows would have other values had nothing been late: see flights beside flights__complete.",
        soft_wrap=True,
    )
    if not (windows.equal and late.equal):
        raise RewindowError("the replay differs from what Flink emitted", str(SAMPLE), "Please report this.")
