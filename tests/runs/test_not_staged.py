"""What a run did not look at: the gate sees records that are gone, windows that are left, and commits of others."""

# pyright: reportArgumentType=false

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.identities import Evidence, Sign
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.quality.configured import gate_of
from spark_jobs.quality.frames import reconciliation_frame
from spark_jobs.runs.life.documents import Changes, Gate, NotStaged
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.evidence import Beside
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress, Progress
from tests.runs.small_runs import MINUTE, T0, pipeline, record, write

EXPECTATIONS = Path(__file__).parents[2] / "expectations"


RECORDS = [record(i, k="ab"[i % 2], t=T0 + i * 1000) for i in range(600)]
LATE = RECORDS[400:410]
"""Records that come when those behind them have been read."""


class Runs:
    """One pipeline, its records, and its runs with the shipped gate, of which nothing is published."""

    def __init__(self, spark, folder: Path) -> None:
        self.spark, self.folder, self.store = spark, folder, RunStore(str(folder / "runs"))
        write(folder / "data", RECORDS[:300], "a.json")
        write(folder / "data", [r for r in RECORDS[300:] if r not in LATE], "b.json")
        self.defined = self.with_text()
        reconcile(spark, self.defined, NoProgress(), store=self.store)

    def with_text(self, old: str = "", new: str = "") -> Pipeline:
        path = self.folder / "beside.yaml"
        pipeline(self.folder, "beside")
        path.write_text(path.read_text().replace(old, new))
        return load_pipeline(path)

    def facts(
        self, defined: Pipeline | None = None, night: bool = False, progress: Progress | None = None
    ) -> tuple[NotStaged, set[str]]:
        """What the gate was told, and the expectations that failed."""
        defined = defined or self.defined
        ends = {"end_policy": EndPolicy(gate=gate_of(defined), ends_as=RunStatus.COMPARED_ONLY), "store": self.store}
        progress = progress or NoProgress()
        if night:
            result = reconcile(self.spark, defined, progress, **ends)
        else:
            result = execute(self.spark, defined, make_plan(self.spark, defined), progress, **ends)
        folder = self.store.folder(result.run_id)
        changes, gate = Changes.read(folder), Gate.read(folder)
        assert changes is not None and gate is not None
        return changes.not_staged, {r.name for r in gate.critical_failures}

    def published(self) -> PublishedTable:
        return PublishedTable(self.spark, Tables.of(self.defined).windows)


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory) -> Iterator[Runs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWINDOW_EXPECTATIONS", str(EXPECTATIONS))
        yield Runs(spark, tmp_path_factory.mktemp("beside"))


def test_a_run_that_looks_at_everything_says_so(runs) -> None:
    facts, failed = runs.facts()
    assert facts == NotStaged(
        records_before=590,
        records_below=590,
        windows_left=0,
        foreign_commits=0,
        files_changed=0,
        unaccounted_records=0,
        unaccounted_pairs=0,
    )
    assert not failed


@pytest.fixture
def without_half(runs) -> Iterator[None]:
    """The first half of the records is gone."""
    file = runs.folder / "data" / "a.json"
    away = file.rename(runs.folder / "a.json")
    yield
    away.rename(file)


@pytest.mark.long
def test_windows_whose_records_are_gone_are_kept_and_the_gate_stays_open(runs, without_half) -> None:
    facts, failed = runs.facts()
    assert (facts.records_before, facts.windows_left) == (None, 0)
    assert not failed


@pytest.mark.long
def test_records_that_are_gone_close_the_gate_of_a_run_that_has_not_looked(runs, without_half, monkeypatch) -> None:
    monkeypatch.setattr("spark_jobs.runs.work.computing.keep_of_range", lambda *_: None)
    facts, failed = runs.facts()
    assert (facts.records_before, facts.records_below) == (590, 290)
    assert "no-record-gone" in failed


@pytest.mark.long
def test_a_night_knows_the_records_below_the_end_offsets_that_it_goes_on_from(runs, monkeypatch) -> None:
    """Also where what decides whether a night may go on is wrong: records that came late or are gone close the gate."""

    data = runs.folder / "data"
    write(data, [record(600, k="a", t=T0 + 10 * MINUTE)], "new.json")
    facts, failed = runs.facts(night=True)
    assert (facts.records_before, facts.records_below, facts.goes_on, failed) == (590, 590, True, set())
    monkeypatch.setattr(Beside, "evidence", lambda self: Evidence(Sign.SAME))
    write(data, LATE, "late.json")
    facts, failed = runs.facts(night=True)
    assert facts.unaccounted_records == 10
    assert failed == {"each-record-accounted"}
    (data / "late.json").unlink()
    away = (data / "b.json").rename(runs.folder / "b.json")
    facts, failed = runs.facts(night=True)
    away.rename(data / "b.json")
    (data / "new.json").unlink()
    assert facts.unaccounted_records == 290
    assert "each-record-accounted" in failed


def test_a_file_that_is_written_again_while_a_run_reads_it_closes_the_gate(runs, monkeypatch) -> None:
    """Also where nothing compares what a plan has pinned."""
    monkeypatch.setattr("spark_jobs.runs.work.evaluation.confirm_files", lambda *_: None)
    monkeypatch.setattr("spark_jobs.sources.history.check_pinned", lambda *_: None)
    file = runs.folder / "data" / "b.json"
    before = file.stat()

    class Meanwhile(NoProgress):
        @contextmanager
        def stage(self, name: str, detail: str = "") -> Iterator[None]:
            if name == "diff":
                os.utime(file, (1, 1))
            yield

    facts, failed = runs.facts(progress=Meanwhile())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert facts.files_changed == 1
    assert "no-file-changed" in failed


@pytest.mark.long
def test_a_night_whose_windows_lose_records_closes_the_gate(runs) -> None:
    """Whatever decides what a night computes again: no window that is there can have fewer records than before."""
    seen = []

    def gate(evidence):
        fewer = evidence.staged.withColumn("records_on_time", F.col("records_on_time") - 1)
        frames = (reconciliation_frame(replace(evidence, staged=staged)) for staged in (evidence.staged, fewer))
        seen.extend(frame["run_records_lost"].iloc[0] for frame in frames)
        return {"verdict": "passed", "blocks": False, "results": []}

    write(runs.folder / "data", [record(600, k="a", t=T0 + 10 * MINUTE)], "c.json")
    reconcile(runs.spark, runs.defined, NoProgress(), store=runs.store, end_policy=EndPolicy(gate=gate))
    assert seen[0] == 0 and seen[1] > 0


@pytest.mark.long
def test_what_others_did_to_the_table_is_no_fault_once_a_run_has_compared_with_it(runs) -> None:
    table = runs.published().table
    runs.spark.sql(f"CALL rewindow.system.rewrite_data_files(table => '{table.split('.', 1)[1]}')")
    assert runs.facts()[0].foreign_commits == 0, "a rewrite changes no row"
    runs.spark.sql(f"DELETE FROM {table} WHERE k = 'a'")
    facts, failed = runs.facts()
    assert facts.foreign_commits == 0 and not failed, "the run over everything corrects it"
