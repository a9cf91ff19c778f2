"""What it takes to publish a run, and what every refusal leaves: each test is a way in which a run was once lost."""

# pyright: reportArgumentType=false, reportOptionalSubscript=false

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import CatalogError, DefinitionError, NotApprovedError, RewindowError, RunStateError
from spark_jobs.lakehouse.branches import PublicationBranches
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, Tables, aligned, create_tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.life.documents import Answer, Approval, Outcome, Request, Requested, StagedRange, status_of
from spark_jobs.runs.life.lifecycle import Event, RunLife
from spark_jobs.runs.life.publication import publish
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.reopening import discard_staged, publish_staged, reopened
from spark_jobs.runs.life.start import instant
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import DEFINITION, RunFolder, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.causes import cause_of_change, cause_of_run, published_before
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.runs.work.stages import Verify
from spark_jobs.submit.application import execute_stage, plan_stage, reopened_run, run_stage
from tests.faults.boundaries import Stopped, stopped_at, watched_steps
from tests.runs.small_runs import MINUTE, T0, contents, pipeline, record, rows, write
from tests.sampling import sample


def now() -> datetime:
    return datetime.now(UTC)


def folder_of(run_id: str) -> RunFolder:
    return RunStore.configured().folder(run_id)


def staged(spark: SparkSession, defined: Pipeline, run_id: str | None = None, **options) -> RunResult:
    """A run that waits for an approval; `options` as of `make_plan`."""
    plan = make_plan(spark, defined, **options)
    end_policy = EndPolicy(policy=Policy.ON_APPROVAL)
    return execute(spark, defined, plan, NoProgress(), run_id=run_id, end_policy=end_policy)


def published(spark: SparkSession, defined: Pipeline, **options) -> RunResult:
    return execute(spark, defined, make_plan(spark, defined, **options), NoProgress())


def begun_in_stages(spark: SparkSession, defined: Pipeline, run_id: str, chunks: int) -> RunFolder:
    """A run whose plan stage is done, as Airflow does it."""
    folder = folder_of(run_id)
    Request.of(run_id, defined, RunKind.BACKFILL, "", now(), Requested(chunks=chunks)).write(folder)
    folder.write_text(DEFINITION, defined.text)
    plan_stage(spark, folder, defined, NoProgress(), ExitStack())
    execute_stage(spark, folder, defined, NoProgress(), Stage.TIMELINE)
    return folder


def status(spark: SparkSession, defined: Pipeline, run_id: str) -> str:
    row = Ledger(spark, Tables.of(defined)).row(run_id)
    return row["status"] if row else ""


def changed(tmp_path: Path, name: str, number: int) -> Pipeline:
    """The pipeline with other totals."""
    path = tmp_path / f"{name}.yaml"
    other = tmp_path / f"{name}_{number}.yaml"
    other.write_text(path.read_text().replace("total: sum(v)", f"total: sum(v) + {number}"))
    return load_pipeline(other)


class Shared:
    """One pipeline, published once; each test stages the windows of another definition of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.number = spark, folder, 0
        write(folder / "data", [record(i) for i in range(300)])
        self.defined = pipeline(folder, "shared")
        self.first = published(spark, self.defined)

    def changed(self) -> Pipeline:
        self.number += 1
        return changed(self.folder, "shared", self.number)

    def staged(self) -> RunResult:
        return staged(self.spark, self.changed())

    def status(self, run: RunResult) -> str:
        return status(self.spark, self.defined, run.run_id)

    def published_rows(self) -> int:
        return self.spark.table(Tables.of(self.defined).windows).count()

    def has_staging(self, run: RunResult) -> bool:
        row = Ledger(self.spark, Tables.of(self.defined)).row(run.run_id)
        assert row is not None
        return self.spark.catalog.tableExists(Tables.of(self.defined).staging(run.run_id, row["attempt"]))


@pytest.fixture(scope="module")
def shared(spark, tmp_path_factory) -> Shared:
    return Shared(spark, tmp_path_factory.mktemp("shared"))


@pytest.mark.long
def test_a_run_that_was_given_up_cannot_be_approved_any_more(spark, shared) -> None:
    defined, waiting = shared.defined, shared.staged()
    before = contents(spark, defined)
    assert before[1], "there are late records to lose"
    assert waiting.run_id in recover(spark, Tables.of(defined), now() + timedelta(days=8))
    assert status(spark, defined, waiting.run_id) == "abandoned"
    assert status_of(folder_of(waiting.run_id)) is RunStatus.ABANDONED
    with pytest.raises(RunStateError, match="the run is abandoned"):
        publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "approved late")
    assert contents(spark, defined) == before
    assert status(spark, defined, waiting.run_id) == "abandoned"


def test_a_run_with_a_missing_chunk_or_one_staged_again_since_it_was_verified_is_not_published(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(600)])
    defined = pipeline(tmp_path, "missing_chunk")
    folder = begun_in_stages(spark, defined, "missing-chunk", 2)
    execute_stage(spark, folder, defined, NoProgress(), Stage.REPLAY, 1)
    with pytest.raises(RunStateError, match="not everything is staged: chunk 2 of 2 is missing"):
        execute_stage(spark, folder, defined, NoProgress(), Stage.VERIFY)
    with pytest.raises(RunStateError, match="has not been verified"):
        publish_staged(lambda _: spark, "missing-chunk", NoProgress(), "in a hurry")
    execute_stage(spark, folder, defined, NoProgress(), Stage.REPLAY, 2)
    reopened_run(spark, folder, defined, NoProgress()).evaluate([Verify()])
    assert status(spark, defined, "missing-chunk") == "staged"
    execute_stage(spark, folder, defined, NoProgress(), Stage.REPLAY, 1)
    assert run_stage("missing-chunk", Stage.PUBLISH, None, "") == 9
    assert not spark.table(Tables.of(defined).windows).count()
    execute_stage(spark, folder, defined, NoProgress(), Stage.VERIFY)
    assert status(spark, defined, "missing-chunk") == "published", "nobody has to approve it"
    assert run_stage("missing-chunk", Stage.PUBLISH, None, "") == 0
    assert spark.table(Tables.of(defined).windows).count()


def test_the_run_id_of_a_run_of_another_pipeline_is_refused(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(60)])
    defined, other = pipeline(tmp_path, "has_the_id"), pipeline(tmp_path, "wants_the_id")
    waiting = staged(spark, defined, "the-id")
    for is_published in (False, True):
        if is_published:
            publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "seen")
            folder_of(waiting.run_id).remove(Request.FILE)  # the ledger knows it too
        for begin in (
            lambda: execute(spark, other, make_plan(spark, other), NoProgress(), run_id="the-id"),
            lambda: reconcile(spark, other, NoProgress(), run_id="the-id"),
        ):
            with pytest.raises(RunStateError, match="this run id is of a run of pipeline has_the_id"):
                begin()
        assert status(spark, defined, "the-id") == ("published" if is_published else "awaiting_approval")
    again = execute(spark, defined, make_plan(spark, defined), NoProgress(), run_id="the-id")
    assert again.note == "this run has been published already; nothing was done"


def test_a_plan_with_a_chunk_cut_out_is_refused(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(600)])
    defined = pipeline(tmp_path, "cut_plan")
    plan = make_plan(spark, defined, chunks=3)
    for kept in (plan.chunks[1:], plan.chunks[:2], plan.chunks[::2], ()):
        edited = plan_from_json(plan.to_json())
        object.__setattr__(edited, "chunks", kept)
        with pytest.raises(DefinitionError, match="do not cover its range"):
            execute(spark, defined, edited, NoProgress())


@pytest.mark.long
def test_a_second_process_cannot_publish_a_run_that_is_being_published(spark, shared, monkeypatch) -> None:
    defined, waiting = shared.defined, shared.staged()
    refused: list[Exception] = []
    original = PublishedTable.publish

    def meanwhile(self: PublishedTable, *arguments):
        monkeypatch.setattr(PublishedTable, "publish", original)
        with pytest.raises(RunStateError, match="another process works on this run") as refusal:
            publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "also me")
        refused.append(refusal.value)
        return original(self, *arguments)

    monkeypatch.setattr(PublishedTable, "publish", meanwhile)
    publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "looks right")
    assert refused
    windows = spark.table(Tables.of(defined).windows)
    assert windows.count() == waiting.counts.windows == windows.select("k", "window_start").distinct().count()
    again = publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "once more")
    assert again.note == "nothing was done: the run is published already"
    row = Ledger(spark, Tables.of(defined)).row(waiting.run_id)
    assert row is not None and row["reason"] == "looks right" and row["person"]


def test_the_names_of_run_ids_that_differ_in_punctuation_or_case_differ(tmp_path) -> None:
    names = {Tables.of(pipeline(tmp_path, "ids")).staging(run, "a") for run in ("x.1", "x-1", "x_1", "X.1", "x" * 200)}
    assert len({name.lower() for name in names}) == 5
    assert all(len(name.rsplit(".", 1)[1]) < 60 for name in names)


@pytest.mark.long
def test_run_ids_that_differ_in_punctuation_share_nothing(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "ids")
    mine = staged(spark, defined, "night.1")
    theirs = staged(spark, defined, "night-1", end=T0 + 2 * MINUTE)
    assert theirs.counts.windows < mine.counts.windows
    publish_staged(lambda _: spark, "night.1", NoProgress(), "approved")
    assert spark.table(Tables.of(defined).windows).count() == mine.counts.windows


@pytest.mark.long
def test_the_publish_stage_demands_the_approval_and_the_gate(spark, shared) -> None:
    defined, waiting = shared.defined, shared.staged()
    folder = folder_of(waiting.run_id)
    before = Outcome.read(folder)
    assert run_stage(waiting.run_id, Stage.PUBLISH, None, "") == 3
    assert status(spark, defined, waiting.run_id) == "awaiting_approval"
    refused = Outcome.read(folder)
    assert before is not None and refused is not None
    assert refused.refusal.startswith("the run waits for an approval (")
    assert refused == before.model_copy(update={"refusal": refused.refusal})
    Approval(decision=Answer.APPROVED, by="ann", attempt="another attempt").write(folder)
    assert run_stage(waiting.run_id, Stage.PUBLISH, None, "") == 3, "the approval was of another attempt"
    document = StagedRange.read(folder)
    assert document is not None
    Approval(decision=Answer.APPROVED, by="ann", attempt=document.attempt).write(folder)
    assert run_stage(waiting.run_id, Stage.PUBLISH, None, "") == 0
    assert status(spark, defined, waiting.run_id) == "published"
    ended = Outcome.read(folder)
    assert ended is not None and not ended.refusal


def test_a_closed_gate_is_overridden_only_by_a_person_with_a_reason(spark, shared) -> None:
    defined = shared.changed()
    failed = {"expectation": "few", "severity": "critical", "success": False}
    closed = {"verdict": "failed", "blocks": True, "results": [failed]}
    end_policy = EndPolicy(gate=lambda evidence: closed)
    run = execute(spark, defined, make_plan(spark, defined), NoProgress(), end_policy=end_policy)
    assert status(spark, defined, run.run_id) == "gate_failed"
    assert run_stage(run.run_id, Stage.PUBLISH, None, "") == 3
    job, document = reopened(spark, folder_of(run.run_id), defined, NoProgress())
    with pytest.raises(NotApprovedError, match="the gate is closed"):
        publish(job, document, reason="it is fine")
    assert status(spark, defined, run.run_id) == "gate_failed"
    publish_staged(lambda _: spark, run.run_id, NoProgress(), "it is fine", "ann")
    row = Ledger(spark, Tables.of(defined)).row(run.run_id)
    assert row is not None and (row["status"], row["reason"], row["person"]) == ("published", "it is fine", "ann")


@pytest.mark.long
def test_a_stale_approval_does_not_overwrite_a_newer_run_whose_snapshots_have_expired(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "stale")
    published(spark, defined)
    waiting = staged(spark, changed(tmp_path, "stale", 1))
    newer = published(spark, changed(tmp_path, "stale", 2))
    maintain(spark, defined, NoProgress(), now=now() + timedelta(seconds=1), keep_snapshots=timedelta(0))
    before = contents(spark, defined)
    with pytest.raises(CatalogError, match=f"run {newer.run_id} has published windows of the same range meanwhile"):
        publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "approved late")
    assert contents(spark, defined) == before


@pytest.mark.long
def test_a_commit_whose_answer_is_lost_is_looked_up_and_a_chunk_without_windows_counts_as_staged(
    spark, tmp_path, monkeypatch
) -> None:
    far = [record(i) for i in range(40)] + [record(i, t=T0 + 90 * MINUTE, a=T0 + 90 * MINUTE) for i in range(40, 80)]
    write(tmp_path / "data", far)
    defined = pipeline(tmp_path, "lost_answer")
    move = PublicationBranches.move

    def lost(self: PublicationBranches, *arguments) -> bool:
        assert move(self, *arguments)
        return False

    monkeypatch.setattr(PublicationBranches, "move", lost)
    result = published(spark, defined, chunks=6)
    assert result.changes == {"inserted": result.counts.windows}
    assert spark.table(Tables.of(defined).windows).count() == result.counts.windows
    outcome = Outcome.read(folder_of(result.run_id))
    assert outcome is not None and outcome.status is RunStatus.PUBLISHED


@pytest.mark.long
def test_an_attempt_that_was_replaced_writes_nothing_any_more(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "replaced")
    folder = begun_in_stages(spark, defined, "replaced", 1)
    first, _ = reopened(spark, folder, defined, NoProgress())
    begun_in_stages(spark, defined, "replaced", 1)
    with pytest.raises(RunStateError, match="another attempt of this run has begun since"):
        first.life.apply(Event.FAIL)
    assert not first.staging.has(), "its staging is dropped"
    assert status(spark, defined, "replaced") == "running"


@pytest.mark.long
def test_a_long_run_gives_signs_of_life_and_stops_when_it_has_lost_its_claim(spark, tmp_path) -> None:
    import time

    write(tmp_path / "data", [record(i) for i in range(60)])
    defined = pipeline(tmp_path, "heartbeat")
    folder = begun_in_stages(spark, defined, "heartbeat", 1)
    job, document = reopened(spark, folder, defined, NoProgress())
    ledger = Ledger(spark, Tables.of(defined))
    life = RunLife(ledger, "heartbeat", document.attempt, now=now, heartbeat=timedelta(seconds=1))
    began = (ledger.row("heartbeat") or {})["heartbeat_at"]
    with life.beating():
        deadline = time.monotonic() + 60
        while (ledger.row("heartbeat") or {})["heartbeat_at"] == began and time.monotonic() < deadline:
            time.sleep(0.2)
        assert (ledger.row("heartbeat") or {})["heartbeat_at"] > began
        begun_in_stages(spark, defined, "heartbeat", 1)
        with pytest.raises(RunStateError, match="another attempt"):
            while time.monotonic() < deadline:
                life.ensure()
                time.sleep(0.2)
    assert job.result.run_id == "heartbeat"


@pytest.mark.long
def test_discarding_a_run_leaves_no_staging_and_a_published_one_cannot_be_discarded(spark, shared) -> None:
    waiting, seen = shared.staged(), shared.published_rows()
    assert shared.has_staging(waiting)
    discard_staged(lambda _: spark, waiting.run_id, NoProgress(), "a test")
    assert shared.status(waiting) == "discarded"
    assert not shared.has_staging(waiting)
    with pytest.raises(RunStateError, match="the run is published"):
        discard_staged(lambda _: spark, shared.first.run_id, NoProgress(), "a test")
    assert shared.published_rows() == seen > 0


def test_damaged_documents_neither_publish_a_run_nor_keep_it_from_being_discarded(spark, shared) -> None:
    waiting = shared.staged()
    folder = folder_of(waiting.run_id)
    needed = ("plan.json", "staged.json", "changes.json", "request.json")
    for document in needed:
        there = folder.read_bytes(document)
        damages = (b"[" * 100_000, b'{"counts": 7, "reach": "x", "kind": 5}', there[:-9], b"\xff\x00", b"[1]")
        for damage in sample(damages[:2], damages):
            folder.write_bytes(document, damage)
            with pytest.raises(RewindowError, match=r"damaged|not a plan"):
                publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "all the same")
        folder.write_bytes(document, there)
    for document in (*needed, "outcome.json"):
        folder.write_bytes(document, b"{")
    discard_staged(lambda _: spark, waiting.run_id, NoProgress(), "damaged")
    assert shared.status(waiting) == "discarded"
    assert status_of(folder) is RunStatus.DISCARDED
    assert not shared.has_staging(waiting)


@pytest.mark.long
def test_a_run_that_is_discarded_while_another_process_verifies_it_stays_discarded(spark, tmp_path) -> None:
    """What the other one reads is gone; it says why, and its failure does not become the run's."""
    write(tmp_path / "data", [record(i) for i in range(60)])
    defined = pipeline(tmp_path, "both_at_once")

    def gate(evidence):
        discard_staged(lambda _: spark, "both-at-once", NoProgress(), "no")
        return {"verdict": "passed", "results": [{"success": evidence.staged.isEmpty()}]}

    with pytest.raises(RunStateError, match="the run is discarded"):
        execute(
            spark, defined, make_plan(spark, defined), NoProgress(), run_id="both-at-once",
            end_policy=EndPolicy(gate=gate), in_stages=True,
        )  # fmt: skip
    assert status(spark, defined, "both-at-once") == "discarded"
    assert status_of(folder_of("both-at-once")) is RunStatus.DISCARDED


@pytest.mark.long
def test_a_process_that_is_killed_when_all_is_done_leaves_no_document_that_contradicts_the_ledger(
    spark, tmp_path
) -> None:
    write(tmp_path / "data", [record(i) for i in range(60)])
    defined = pipeline(tmp_path, "last_words")
    acts = {
        "published": lambda run_id: publish_staged(lambda _: spark, run_id, NoProgress(), "right"),
        "discarded": lambda run_id: discard_staged(lambda _: spark, run_id, NoProgress(), "no"),
    }
    for number, (kind, act) in enumerate(acts.items()):
        first = staged(spark, changed(tmp_path, "last_words", 2 * number + 1))
        passed: list[str] = []
        with watched_steps(passed.append):
            act(first.run_id)
        second = staged(spark, changed(tmp_path, "last_words", 2 * number + 2))
        with stopped_at(len(passed) - 1), pytest.raises(Stopped):
            act(second.run_id)
        recover(spark, Tables.of(defined), now())
        assert status_of(folder_of(second.run_id)) == status(spark, defined, second.run_id) == kind


def test_the_cause_of_a_change_is_that_of_the_latest_run_over_it_however_many_have_published(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(600)])
    defined = pipeline(tmp_path, "causes")
    plan = make_plan(spark, defined)
    tables = replace(Tables.of(defined), runs="rewindow.run_tests.runs_of_causes")
    create_tables(spark, tables)
    draw = random.Random(7)
    starts = range(plan.span.start, plan.span.end, MINUTE)
    columns = ("run_id", "definition_hash", "as_of", "range_start", "range_end", "finished_at", "whole")
    schema = StructType([RUNS_SCHEMA[name] for name in columns])
    more = {0: plan.as_of[0] + 1, 1: plan.as_of[1]}
    for count in sample((0, 3, 40), (0, 1, 3, 40, 5000)):
        history = []  # the latest first
        for number in range(count):
            low = draw.randrange(plan.span.start - 5 * MINUTE, plan.span.end, MINUTE)
            high = low + draw.choice((1, 2, 5)) * MINUTE
            seen = draw.choice((plan.as_of, {0: 1, 1: 1}, {0: 1}, {0: 1, 7: 1}, more, None))
            known = draw.choice((plan.definition_hash, plan.definition_hash, "another"))
            ended = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(minutes=number // 2)  # two at a time: by name
            name = f"run-{number // 2:04}-{1 - number % 2}"
            history.append((name, known, seen, instant(low), instant(high), ended, False))
        longer = (instant(plan.span.start), instant(plan.span.end), datetime(2020, 1, 1, tzinfo=UTC))
        if count > 3:  # what came before a run over the whole history decides nothing any more
            history += [("whole", "another", None, *longer, True), ("before", "another", None, *longer, False)]
        output = F.lit(tables.windows).alias("output")
        ledger = spark.createDataFrame(history, schema).select("*", F.lit("published").alias("status"), output)
        aligned(spark, tables.runs, ledger).writeTo(tables.runs).overwrite(F.lit(True))
        known = [None, "a run of long ago", *(row[0] for row in history[:3])]
        cases = [(start, draw.choice(known)) for start in starts]
        frame = spark.createDataFrame(cases, "start BIGINT, old_run_id STRING")
        before = published_before(Ledger(spark, tables), plan, history[0][0] if history else "")
        assert before.latest == (history[1][0] if count > 1 else None)
        assert len(before.ranges) <= 3 * (len(starts) + 5)
        runs = spark.createDataFrame(history, schema).where(F.col("run_id").isin(known[2:] or ["none"]))
        by_run: dict[str, list[str]] = {}
        for run_id, why in runs.select("run_id", cause_of_run(plan)).collect():
            by_run.setdefault(why, []).append(run_id)
        found = frame.withColumn("rw_start", F.timestamp_millis("start")).select(
            "start",
            "old_run_id",
            cause_of_change(before.ranges, plan, lambda: by_run).alias("cause"),  # noqa: B023
        )

        def cause(row) -> str:
            _, known, seen, *_ = row
            seen = seen or {}
            if known != plan.definition_hash:
                return "logic_change"
            if seen == plan.as_of:
                return "source_repair"
            return "late_arrivals" if all(n <= plan.as_of.get(p, -1) for p, n in seen.items()) else "backfill"

        def expected(start: int, old: str | None) -> str:
            over = next((r for r in history if r[3] <= instant(start) < r[4]), None)  # noqa: B023
            over = over or next((r for r in history if r[0] == old), None)  # noqa: B023
            return cause(over) if over else "backfill"

        assert rows(found) == rows(spark.createDataFrame([(s, o, expected(s, o)) for s, o in cases], found.schema))
