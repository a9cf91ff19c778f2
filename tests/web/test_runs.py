"""Runs in short, read from stores of several kinds."""

# pyright: reportArgumentType=false, reportOptionalMemberAccess=false
from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from spark_jobs.runs.life.documents import AnyOutcome, Changes, Gate, Outcome, Request
from spark_jobs.runs.life.store import RunStore
from spark_jobs.web.runs import Runs, Wanted, page_of
from spark_jobs.web.standing import LONGEST, trends_of
from spark_jobs.web.summary import RUNNING, Run, read_run, run_of
from tests.report.documents import changes, gate, outcome, request


def in_short(run_id: str = "night-1", status: str | None = "published", **counts: object) -> Run:
    return of(request(run_id=run_id), outcome(status) if status else None, changes(**counts))


def of(asked: dict, ended: dict | None = None, changed: dict | None = None, checked: dict | None = None) -> Run:
    """The run of four documents."""
    kinds = ((AnyOutcome, ended), (Changes, changed), (Gate, checked))
    return run_of(Request.model_validate(asked), *(None if d is None else kind.model_validate(d) for kind, d in kinds))


def begun(store: RunStore, run_id: str, **of_request: object) -> None:
    store.folder(run_id).write(Request.FILE, request(run_id=run_id, **of_request))


# What the shares are.


def test_the_match_share_is_of_the_published_windows_that_were_computed_again() -> None:
    run = in_short(counts={"inserted": 500, "updated": 37, "retracted": 1}, windows_recomputed=760)
    assert run.match_share == (760 - 38) / 760
    assert run.changed == {
        "inserted": 500,
        "updated": 37,
        "retracted": 1,
        "bookkeeping": 0,
        "was_open": 0,
        "outgrown": 0,
    }


def test_the_first_run_of_all_has_no_match_share() -> None:
    assert in_short(counts={"inserted": 768}, windows_recomputed=0).match_share is None


def test_the_late_share_counts_dropped_and_refining_records() -> None:
    assert in_short(pairs_on_time=90, pairs_late=4, pairs_dropped=6).late_share == 0.1
    assert in_short(pairs_on_time=0, pairs_late=0, pairs_dropped=0).late_share is None


def test_a_run_without_an_outcome_is_running_whatever_else_it_left() -> None:
    run = of(request())
    assert (run.status, run.title, run.match_share, run.changed) == (RUNNING, "At work", None, None)
    assert not run.has_ended


def test_the_verdict_is_the_one_of_the_report() -> None:
    run = of(request(), outcome("published"), changes(), gate())
    assert (run.level, run.title, run.status_title) == ("note", "Published, with 1 warning", "Published")
    assert of(request(), outcome("gate_failed"), changes(), gate()).title == "Stopped by the gate"


def test_a_run_from_the_command_line_belongs_to_the_dag_of_its_pipeline_and_kind() -> None:
    assert of(request(kind="backfill")).dag_id == "backfill__departures_hourly"
    assert of(request(kind="backfill", dag_id="other")).dag_id == "other"


@pytest.mark.parametrize("odd", [None, 7, "text", [1], {"a": 1}, float("nan"), True, "\ud800<b>", -1])
def test_a_document_with_a_value_of_a_wrong_type_is_named_and_the_others_are_summarised(tmp_path, odd: object) -> None:
    store = RunStore(str(tmp_path))
    for file, good, fields in (
        (Request.FILE, request(), ("pipeline", "kind", "dag_id", "requested_at", "requested_by", "reason")),
        (Outcome.FILE, outcome("published"), ("status", "message", "counts", "finished_at")),
        (Changes.FILE, changes(), ("counts", "windows", "windows_recomputed", "pairs_on_time", "pairs_late")),
        (Gate.FILE, gate(), ("results",)),
    ):
        for field in fields:
            folder = store.folder(f"departures_hourly-reconcile-{file}-{field}")
            whole = {
                Request.FILE: request(),
                Outcome.FILE: outcome("published"),
                Changes.FILE: changes(),
                Gate.FILE: gate(),
            }
            for name, content in (whole | {file: good | {field: odd}}).items():
                folder.write(name, content)
            run = read_run(folder)
            assert run is not None and run.pipeline
            assert run.status != "damaged" or run.message.startswith(f"{file} cannot be read: ")
            assert (run.pipeline + run.message + run.status + run.reason).encode()  # can be sent


# Which runs, and which page.


def test_days_are_days_in_utc_and_both_ends_are_included() -> None:
    at = "2013-04-01T23:30:00-05:00"  # 04:30 of the second in UTC
    run = of(request(requested_at=at), outcome("published"))
    assert Wanted(since=date(2013, 4, 2), until=date(2013, 4, 2)).takes(run)
    assert not Wanted(until=date(2013, 4, 1)).takes(run)
    assert not Wanted(since=date(2013, 4, 3)).takes(run)
    assert not Wanted(since=date(1, 1, 1)).takes(of(request(requested_at="")))


def test_pages_cover_all_runs_once_and_the_last_one_stands_for_those_beyond() -> None:
    runs = [in_short(f"run-{n}") for n in range(53)]
    seen = [run for number in (1, 2, 3) for run in page_of(runs, number).runs]
    assert seen == runs
    assert page_of(runs, 99) == page_of(runs, 3)
    assert (page_of([], 1).pages, page_of([], 1).runs) == (1, [])


# The lines.


def test_a_line_shows_the_last_runs_oldest_first() -> None:
    runs = [in_short(f"r{n}", counts={"updated": n}, windows_recomputed=100) for n in range(LONGEST + 10)]
    (trend,) = trends_of(runs)
    assert (trend.match.runs, trend.match.now, trend.match.low) == (LONGEST, "100 %", "71.0 %")
    places = [tuple(map(float, point.split(","))) for point in trend.match.points.split()]
    assert places == sorted(places), "x grows"
    assert places[-1] == (trend.match.x, trend.match.y) == (156, 4), "the newest at the right; it is the highest"


def test_backfills_and_reconciliations_of_a_pipeline_have_lines_of_their_own() -> None:
    runs = [of(request(kind=kind), outcome("published"), changes()) for kind in ("reconcile", "backfill", "reconcile")]
    assert [(trend.kind, trend.match.runs) for trend in trends_of(runs)] == [("reconcile", 2), ("backfill", 1)]


def test_one_share_is_a_dot_and_none_is_no_line() -> None:
    (trend,) = trends_of([in_short(windows_recomputed=0)])
    assert trend.match is None
    assert trend.late.description.endswith("in the only run that has this share")
    assert trends_of([of(request())]) == []


# Stores.


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of an S3 server on this machine, where the packages for one are there."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    from tests.services.object_store import environment_of, object_store

    with object_store(tmp_path_factory.mktemp("s3")) as at, environment_of(*at):
        yield "s3://lake/runs"


@pytest.fixture(params=["path", "file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    match request.param:
        case "path":
            return RunStore(str(tmp_path / "runs"))
        case "file":
            return RunStore(f"file://{tmp_path}/runs")
        case "memory":
            return RunStore(f"memory://{tmp_path}/runs")
        case _:
            return RunStore(f"{request.getfixturevalue('s3')}/{tmp_path.name}")


def test_runs_of_any_store_are_listed_last_requested_first(store: RunStore) -> None:
    runs = Runs(store)
    assert runs.all() == []
    for run_id, day in (("b-1", 3), ("a-1", 5), ("c-1", 4)):
        begun(store, run_id, requested_at=f"2013-04-0{day}T05:00:00+00:00")
    store.folder("no-request").write(Outcome.FILE, outcome("failed"))
    assert [run.run_id for run in runs.all()] == ["a-1", "c-1", "b-1"]


def test_a_listing_sees_what_other_processes_write(store: RunStore) -> None:
    runs = Runs(RunStore(store.url))
    begun(store, "night-1")
    assert [run.status for run in runs.all()] == [RUNNING]
    store.folder("night-1").write(Outcome.FILE, outcome("awaiting_approval"))
    assert [run.status for run in runs.all()] == ["awaiting_approval"]
    store.folder("night-1").write(Outcome.FILE, outcome("published"))
    store.folder("night-1").write(Changes.FILE, changes(windows=7))
    assert [(run.status, run.windows) for run in runs.all()] == [("published", 7)]
    store.folder("night-1").remove(Outcome.FILE)  # it begins again
    begun(store, "night-2")
    assert {(run.run_id, run.status) for run in runs.now(runs.all())} == {("night-1", RUNNING), ("night-2", RUNNING)}


DAMAGED: dict[str, bytes] = {
    "cut": b'{"pipeline": "p", "st',
    "not-an-object": b"[1]",
    "not-utf-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "many-digits": b'{"status": ' + b"9" * 5_000 + b"}",
    "empty": b"",
}


@pytest.mark.parametrize("document", [Request.FILE, Outcome.FILE, Changes.FILE, Gate.FILE])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_document_is_named_and_leaves_the_other_runs_to_be_seen(
    tmp_path: Path, document: str, damage: str
) -> None:
    store = RunStore(str(tmp_path))
    begun(store, "good-1")
    begun(store, "p-backfill-bad")
    store.folder("p-backfill-bad").write_bytes(document, DAMAGED[damage])
    (tmp_path / "a-file").write_text("not a folder")
    runs = {run.run_id: run for run in Runs(store).all()}
    assert runs.keys() == {"good-1", "p-backfill-bad"}
    assert runs["good-1"].status == RUNNING
    bad = runs["p-backfill-bad"]
    assert (bad.status, bad.level, bad.title, bad.status_title) == ("damaged", "bad", "Damaged", "Damaged")
    assert bad.message.startswith(f"{document} cannot be read: ")
    assert len(bad.message) < 300
    if document == Request.FILE:  # who may see it is then decided by the name of its folder
        assert (bad.pipeline, bad.dag_id, bad.requested_at) == ("p", "backfill__p", None)
    else:
        assert bad.pipeline == request()["pipeline"]


@pytest.mark.parametrize(
    ("document", "content"),
    [
        (Outcome.FILE, b'{"status": "published", "counts": {"windows": ' + b"9" * 400 + b"}}"),
        (Outcome.FILE, b'{"status": "published", "finished_at": "0001-01-01T00:00:00+23:59"}'),
        (
            Request.FILE,
            b'{"run_id": "r", "pipeline": "p", "kind": "backfill", "requested_at": "9999-12-31T23:59:59-23:59"}',
        ),
        (Changes.FILE, b'{"windows": 1e400}'),
    ],
)
def test_a_value_beyond_all_bounds_is_unknown_and_nothing_more(tmp_path: Path, document: str, content: bytes) -> None:
    store = RunStore(str(tmp_path))
    begun(store, "night-1")
    store.folder("night-1").write_bytes(document, content)
    (run,) = Runs(store).all()
    assert run.status == {Changes.FILE: "damaged", Outcome.FILE: "damaged"}.get(
        document if b"windows" in content else "", run.status
    )
    assert run.windows is None


def test_a_damaged_request_whose_folder_names_no_dag_is_of_no_dag(tmp_path: Path) -> None:
    store = RunStore(str(tmp_path))
    store.folder("whatever").write_bytes(Request.FILE, b"{")
    (run,) = Runs(store).all()
    assert (run.dag_id, run.pipeline, run.status) == (None, "", "damaged")


def test_two_thousand_runs_are_listed_at_once_when_none_has_changed(tmp_path: Path) -> None:
    for n in range(2_000):
        folder = tmp_path / f"departures_hourly-{n:04}"
        folder.mkdir()
        at = datetime.fromtimestamp(1_360_281_600 + n * 3600, UTC).isoformat()
        for name, content in (
            (Request.FILE, request(requested_at=at)),
            (Outcome.FILE, outcome("published")),
            (Changes.FILE, changes()),
        ):
            (folder / name).write_text(json.dumps(content))
        os.utime(folder, (1_400_000_000, 1_400_000_000))
    kept = tmp_path.with_name("kept") / "runs.json"
    runs = Runs(RunStore(str(tmp_path)), kept=kept)
    first = runs.all()
    assert len(first) == 2_000
    began = time.monotonic()
    again = runs.all()
    assert time.monotonic() - began < 1
    assert all(before is after for before, after in zip(first, again, strict=True)), "nothing was read again"

    # Nor does another process read again what has not changed.
    unchanged, changed = first[0].run_id, first[1].run_id
    (tmp_path / unchanged / Outcome.FILE).write_text("{")
    (tmp_path / changed / Outcome.FILE).write_text(json.dumps(outcome("failed")))
    os.utime(tmp_path / changed)
    (tmp_path / first[2].run_id).rename(tmp_path.with_name("gone"))
    other = Runs(RunStore(str(tmp_path)), kept=kept).all()
    assert [run.status for run in other[:2]] == ["published", "failed"]
    assert other[0] == first[0] and other[2:] == first[3:]
    kept.write_text("{")
    assert Runs(RunStore(str(tmp_path)), kept=kept).all()[0].status == "damaged"


def test_a_store_that_does_not_answer_holds_up_nobody_for_long(tmp_path, monkeypatch) -> None:
    """Requests get what is known; the store is read by one thread, however many of them there are."""
    import threading

    store = RunStore(str(tmp_path / "runs"))
    begun(store, "night-1")
    runs = Runs(store, patience=0.05)
    answers, reads = threading.Event(), []
    folders = RunStore.folders

    def slow(self: RunStore) -> dict[str, float | None]:
        reads.append(threading.current_thread().name)
        assert answers.wait(60)
        return folders(self)

    monkeypatch.setattr(RunStore, "folders", slow)
    with pytest.raises(TimeoutError, match="has not been read"):
        runs.all()
    answers.set()
    while not runs._is_complete:
        time.sleep(0.01)
    assert [run.run_id for run in Runs(store).all()] == ["night-1"]
    answers.clear()
    reads.clear()
    begun(store, "night-2")
    for _ in range(5):
        assert [run.run_id for run in runs.all()] == ["night-1"], "what is known"
    assert len(reads) == 1
    answers.set()
    deadline = time.monotonic() + 60
    while len(runs.all()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {run.run_id for run in runs.all()} == {"night-1", "night-2"}
