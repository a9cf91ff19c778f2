"""A staged run of the flights sample, through the real engine into a real Iceberg table; shared by the gate's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import load_pipeline
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.runs.work.computing import published_windows
from spark_jobs.runs.work.difference import identity_of
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.sources import good

ROOT = Path(__file__).parents[2]
EXPECTATIONS = ROOT / "expectations"
FLIGHTS = ROOT / "dags" / "pipelines" / "departures_hourly.yaml"


def staged_flights(spark: SparkSession, folder: Path, table: str, *changes: tuple[str, str]) -> StagedRun:
    """All windows of the sample pipeline, staged in `table`, and nothing published before.

    `changes` replace parts of the definition's text. The namespace is the tests' own, so that nothing that other tests
    publish counts as an earlier day.
    """
    text = FLIGHTS.read_text()
    paths = ("tests/data/flights", str(ROOT / "tests" / "data" / "flights"))
    for old, new in (("namespace: demo", "namespace: gate_tests"), paths, *changes):
        assert old in text
        text = text.replace(old, new)
    definition = folder / "departures_hourly.yaml"
    definition.write_text(text)
    pipeline = load_pipeline(definition)
    plan = make_plan(spark, pipeline)
    spec = spec_of(pipeline, [p.partition for p in plan.partitions])
    records = good(read_planned(spark, pipeline, plan))
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.gate_tests")
    with Replay(History(records, plan.event_times, plan.processing_time_end), spec) as replay:
        published_windows(replay.windows(plan.chunks[0])).writeTo(f"rewindow.gate_tests.{table}").createOrReplace()
    staged = spark.table(f"rewindow.gate_tests.{table}")
    facts = staged.withColumn("cause", F.lit("backfill")).limit(0)
    return StagedRun(
        spark, pipeline, plan, spec, RunKind.BACKFILL, "gate-tests", identity_of(spec), staged,
        facts.withColumn("rw_change", F.lit("inserted")), facts, None, records, None,
    )  # fmt: skip


@pytest.fixture(scope="session")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StagedRun:
    """The sample pipeline as it is: hourly windows without lateness."""
    return staged_flights(spark, tmp_path_factory.mktemp("gate"), "staged")


@pytest.fixture
def suites_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """A copy of the reviewed suites, which `REWINDOW_EXPECTATIONS` names, with one file of one's own text."""

    def make(name: str, text: str) -> Path:
        folder = copytree(EXPECTATIONS, tmp_path / "expectations", dirs_exist_ok=True)
        (folder / name).write_text(text)
        monkeypatch.setenv("REWINDOW_EXPECTATIONS", str(folder))
        return folder

    return make
