"""`rewindow demo`: the main job through Airflow, on real flights in a real topic, beside what real Flink emitted.

The live job's windows lie in a topic of their own. A backfill and a night compare them with the log, a person approves
what changes, and the topic's readers get it; the comparison at the end finds nothing left.
"""

from __future__ import annotations

import os
import re
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
from rich.markup import escape

from spark_jobs.comparison.compare import run_compare
from spark_jobs.comparison.verdicts import Label, Verdict
from spark_jobs.definition import load_pipeline
from spark_jobs.demo.airflow import Airflow, DagRun, waits_for_approval
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.demo.kafka_sample import END_OF_INPUT, LIVE_TOPIC, TOPIC, load_sample
from spark_jobs.demo.ports import kept_port
from spark_jobs.errors import RewindowError, SourceError
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.life.documents import Changes, Gate, Outcome
from spark_jobs.runs.life.store import PAGE, RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.progress import NoProgress, Progress, progress_for
from spark_jobs.settings import Variable, settings
from spark_jobs.spark.jvm import SHORT_APPLICATIONS
from spark_jobs.spark.session import rewindow_home, spark_session

PIPELINE = Path("dags/pipelines/departures_live.yaml")
STREAMING = Path("dags/pipelines/departures_streaming.yaml")
BROKERS_VARIABLE = "REWINDOW_KAFKA"
"""The environment variable from which the sample's pipelines take their brokers."""
CHECKPOINT_VARIABLE = "REWINDOW_STREAMING"
"""The one from which the pipeline of the Structured Streaming query takes its checkpoint."""
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


def emitted_by_flink(spark: SparkSession, sample: Path, *, to_the_end: bool = True) -> DataFrame:
    """The windows that Flink's hourly job emitted: carrier, window, count, sum, minimum and maximum of the distance.

    `to_the_end`: also those that fired because the input ended.
    """
    emitted = spark.read.parquet(str(sample / "emitted_hourly.parquet"))
    if not to_the_end:
        emitted = emitted.where(F.col("watermark") < END_OF_INPUT)
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
    with KafkaBroker(home / "kafka", port=kept_port(home / "kafka.port")) as broker:
        with progress.stage(
            "kafka", f"a broker with real departures in topic {TOPIC}, and the live job's windows in {LIVE_TOPIC}"
        ):
            load_sample(broker, before=before)
        environ = {
            Variable.HOME: str(home),
            BROKERS_VARIABLE: broker.servers,
            CHECKPOINT_VARIABLE: str((SAMPLE / "streaming/checkpoint").absolute()),
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
        f"What that job emitted is compared with the log each time, and put right in its topic {LIVE_TOPIC}.\n"
    )
    with sample_services(home, progress, before=FIRST_NIGHT) as (broker, airflow):
        backfill = trigger(console, airflow, f"backfill__{PIPELINE.stem}", {"reason": "the demo"})
        with progress.stage(
            "new records", "a week more of departures arrives, some of them late; the live job goes on"
        ):
            load_sample(broker, since=FIRST_NIGHT)
        nightly = night(console, airflow, f"reconcile__{PIPELINE.stem}")
        environ = {**os.environ, Variable.HOME: str(home), BROKERS_VARIABLE: broker.servers}
        pipeline = load_pipeline(PIPELINE, environ)
        spark = spark_session("rewindow demo", home=home)
        with progress.stage("compare again", f"what topic {LIVE_TOPIC} says now"):
            again = run_compare(spark, pipeline, NoProgress())
    for run in (backfill, nightly):
        _print_outcome(console, RunStore(str(home / "runs")), run)
    _compare(console, spark, progress, Tables.of(pipeline))
    _print_loop(console, again)
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
    """Wait for the end of a run, and approve it where it waits for a person."""
    printed: set[tuple[str, int]] = set()

    def print_task(task: dict[str, Any]) -> None:
        place = (task["task_id"], task["map_index"])
        if place in printed:
            return
        printed.add(place)
        label = task.get("rendered_map_index") or ""
        mark = {"success": "[green]ok[/]     ", "skipped": "[dim]skipped[/]"}.get(
            task["state"], f"[red]{task['state']}[/]"
        )
        seconds = f"{task['duration']:6.1f} s" if task["duration"] else ""
        console.print(f"  {mark} {task['task_id']:<10} {seconds}  [dim]{label}[/]", highlight=False)

    began = time.monotonic()
    state = airflow.wait(run, _RUN_SECONDS, until=waits_for_approval, on_end=print_task)
    if state not in ("success", "failed"):
        for line in airflow.question(run, "approve").splitlines():
            if line.startswith(("Publishing would", "Readers of")):
                said = escape(re.sub(r"\\(.)", r"\1", line))  # without the escapes of Markdown
                console.print(f"  [yellow]asks[/]    approve     {said}", soft_wrap=True, highlight=False)
        airflow.answer(run, "approve", "Approve", comment="the demo approves")
        state = airflow.wait(run, _RUN_SECONDS, on_end=print_task)
    console.print(f"  ended as {state} after {time.monotonic() - began:.1f} s", highlight=False)
    if state != ends_as:
        console.print(airflow.failures(run), markup=False)
        raise RewindowError(f"the run ended as {state}", run.dag_id, f"Airflow's log is {airflow.log}.")
    return run


def _print_outcome(console: Console, store: RunStore, run: DagRun) -> None:
    folder = store.folder(run_id_of(run.dag_id, run.run_id))
    outcome, changes, gate = Outcome.read(folder), Changes.read(folder) or Changes(), Gate.read(folder)
    counts = outcome.counts if outcome else RunCounts()
    changed = ", ".join(f"{count:,} {what}" for what, count in sorted(changes.counts.items())) or "nothing"
    results = gate.results if gate else ()
    verdicts, corrections = Verdicts.read(folder), DeliveredCorrections.read(folder)
    compared = _counted(verdicts.counts) if verdicts else "not compared"
    console.print(
        f"\n[bold]{run.dag_id}[/]: {outcome and outcome.status.value}\n"
        f"  records {counts.records_read:,}, windows computed {counts.windows:,}, "
        f"on time {counts.pairs_on_time:,}, late {counts.records_late:,}\n"
        f"  windows {changed}\n"
        f"  live job's windows {compared}\n"
        f"  {corrections.sentence() if corrections else 'no corrections'}\n"
        f"  gate {gate and gate.verdict}: {len(gate.failures) if gate else 0} of {len(results)} expectations failed\n"
        f"  report {folder.address(PAGE)}",
        soft_wrap=True,
        highlight=False,
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _print_loop(console: Console, again: Verdicts) -> None:
    """What a comparison finds after the corrections. Raises RewindowError where a closed window still differs."""
    corrected = again.labels.get(Verdict.MATCH, {}).get(Label.CORRECTED, 0)
    console.print(
        f"topic {LIVE_TOPIC}, compared again: {_counted(again.counts)}; {corrected:,} of these were put right.",
        soft_wrap=True,
        highlight=False,
    )
    differ = {name: n for name, n in again.counts.items() if n and name not in (Verdict.MATCH, Verdict.NOT_CLOSED)}
    if differ:
        raise RewindowError(f"the corrected topic still differs: {_counted(differ)}", LIVE_TOPIC, "Please report this.")


def _compare(console: Console, spark: SparkSession, progress: Progress, tables: Tables) -> None:
    with progress.stage("compare", "with what Flink 2.3.0 emitted"):
        windows = compare(faithful_windows(spark, tables), emitted_by_flink(spark, SAMPLE, to_the_end=False))
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
