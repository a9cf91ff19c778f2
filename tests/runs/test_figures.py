"""The figures and sentences of a run, without Spark: what is counted, what is said, and what a killed run leaves."""

# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false
# pyright: reportOptionalSubscript=false
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.report.normal import LONGEST, normal_of, points
from spark_jobs.runs.life.documents import (
    Answer,
    Application,
    Approval,
    Changes,
    EarlierRun,
    ExpectationResult,
    Outcome,
    Request,
)
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.unfinished import record_end
from spark_jobs.runs.planning.git_version import git_version
from spark_jobs.runs.work.figures import RunFigures, bookkeeping_in_words, changes_in_words, failed_in_words
from spark_jobs.runs.work.unmet import closed_in_words, unmet_in_words
from spark_jobs.runs.work.verification import MAX_EARLIER, earlier_runs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = {"inserted": 2, "updated": 5, "retracted": 1, "bookkeeping": 90}


def test_bookkeeping_is_no_restatement() -> None:
    figures = RunFigures.of(
        Changes(counts=COUNTS, windows_recomputed=100, pairs_on_time=90, pairs_late=4, pairs_dropped=6, records_late=5)
    )
    assert (figures.changed, figures.bookkeeping, figures.unchanged) == (8, 90, 94)
    assert (figures.match_share, figures.late_share, figures.dropped_share) == (0.94, 0.1, 0.06)
    assert changes_in_words(COUNTS) == "2 windows inserted, 5 updated, 1 retracted"
    assert "90 windows would get another closing time" in bookkeeping_in_words(90, would=True)
    assert changes_in_words({"bookkeeping": 3}) == "no window" and bookkeeping_in_words(0) == ""
    assert figures.in_words()["Computed"] == "101 windows: 2 new, 5 with other numbers, 94 with the same numbers"
    assert figures.in_words()["Late, dropped"] == "6 (record, window) pairs"


def test_figures_of_a_run_that_got_nowhere_are_unknown() -> None:
    figures = RunFigures.of(None, None)
    assert (figures.changed, figures.match_share, figures.late_share, figures.in_words()) == (None, None, None, {})
    assert RunFigures.of(Changes(counts=COUNTS)).windows is None


def test_a_run_of_complete_values_says_that_nothing_was_counted_as_late() -> None:
    """Each window of a run that judges its records has a pair; a run without windows has counted none."""
    nothing = {"pairs_on_time": 0, "pairs_late": 0, "pairs_dropped": 0, "records_late": 0}
    *_, said = RunFigures.of(Changes(windows=66, **nothing)).in_words().items()
    assert said == ("Late", "not counted: the run computed complete values only, which include every record")
    assert "On time" in RunFigures.of(Changes(windows=0, **nothing)).in_words()
    assert RunFigures.of(Changes(windows=1, **nothing | {"pairs_dropped": 1})).is_judged


def test_infos_are_no_warnings() -> None:
    assert failed_in_words({"critical": 1, "warning": 2, "info": 1}) == "1 critical, 2 warnings, 1 for information"
    assert failed_in_words({}) == "none"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"column": "late_share", "observed": 0.0487, "threshold": {"max_value": 0.02}},
         "Few (observed 4.9 %, allowed at most 2.0 %, column late_share)"),
        ({"observed": 61, "threshold": {"min_value": 1, "max_value": 60}}, "Few (observed 61, allowed 1 to 60)"),
        ({"unexpected_count": 3, "checked": 40, "threshold": {"min_value": 1}},
         "Few (observed 3 of 40 rows are unexpected, allowed at least 1)"),
        ({"error": "no such column"}, "Few (could not be evaluated: no such column)"),
        ({"observed": None, "threshold": {"max_value": 2}}, "Few (observed not counted, allowed at most 2)"),
    ],
)  # fmt: skip
def test_a_failed_expectation_in_a_sentence(changed, words) -> None:
    result = ExpectationResult.model_validate({"description": "Few", "success": False} | changed)
    assert unmet_in_words(result) == words
    assert closed_in_words([result, result]) == f"2 critical expectations failed: {words}; and 1 more"


def test_a_run_that_was_ended_by_hand_says_so_and_where(tmp_path) -> None:
    folder = RunStore(str(tmp_path)).folder("a-run")
    ended = Application(stage=Stage.PLAN, application_id="a", seconds=1.5)
    begun = Application(stage=Stage.VERIFY, application_id="b")
    ended.write_as(folder, Application.file_of(Stage.PLAN))
    begun.write_as(folder, Application.file_of(Stage.VERIFY))
    record_end(folder, NOW)
    outcome = Outcome.read(folder)
    assert outcome is not None and (outcome.status, outcome.stage) == (RunStatus.FAILED, Stage.VERIFY)
    assert "ended by hand, or killed in `verify`" in outcome.message
    for status, word in ((RunStatus.AWAITING_APPROVAL, "without an answer"), (RunStatus.STAGED, "nothing publishes")):
        Outcome(run_id="a-run", status=status).write(folder)
        record_end(folder, NOW)
        outcome = Outcome.read(folder)
        assert outcome is not None and outcome.status is status and word in outcome.note
    Approval(decision=Answer.APPROVED, by="ann").write(folder)  # then it is not the approval that was ended
    for refusal, word in (("", "nothing publishes"), ("it is stale", "")):
        Outcome(run_id="a-run", status=RunStatus.AWAITING_APPROVAL, refusal=refusal).write(folder)
        record_end(folder, NOW)
        outcome = Outcome.read(folder)
        assert outcome is not None and word in outcome.note and bool(outcome.note) == bool(word)
    Outcome(run_id="a-run", status=RunStatus.PUBLISHED).write(folder)
    before = folder.read_bytes(Outcome.FILE)
    record_end(folder, NOW)
    assert folder.read_bytes(Outcome.FILE) == before


def test_the_list_of_earlier_runs_goes_from_run_to_run_and_stays_short(tmp_path) -> None:
    store = RunStore(str(tmp_path))
    before = store.folder("night-1")
    request = Request(run_id="night-1", pipeline="p", kind=RunKind.RECONCILE, requested_at="2026-01-01T05:00:00+00:00")
    request.write(before)
    many = tuple(EarlierRun(run_id=f"n{i}", kind=RunKind.RECONCILE, windows=i) for i in range(MAX_EARLIER))
    Changes(counts=COUNTS, windows_recomputed=100, records_read=12, earlier=many).write(before)
    found = earlier_runs(store.folder("night-2"), "night-1")
    assert [e.run_id for e in found] == [*(f"n{i}" for i in range(1, MAX_EARLIER)), "night-1"]
    assert (found[-1].counts, found[-1].records_read) == (COUNTS, 12)
    assert earlier_runs(before, "gone") == earlier_runs(before, None) == ()


def test_a_figure_outside_all_of_enough_runs_before_is_unusual() -> None:
    nights = [EarlierRun(run_id="n", kind=RunKind.RECONCILE, records_read=100 + i) for i in range(40)]
    backfill = EarlierRun(run_id="b", kind=RunKind.BACKFILL, records_read=10**9)
    changes = Changes(records_read=500, earlier=(*nights, backfill))
    normal = normal_of(changes, "reconcile")
    assert normal is not None and normal.runs == LONGEST
    read = next(f for f in normal.figures if f.name == "New records read")
    assert (read.low, read.median, read.high, read.is_unusual) == (110, 124.5, 139, True)
    assert read.place == "more than in all 30 before"
    usual = normal_of(changes.model_copy(update={"records_read": 120}), "reconcile")
    assert usual is not None and not any(f.is_unusual for f in usual.figures)
    few = normal_of(changes.model_copy(update={"earlier": nights[:2]}), "reconcile")
    assert few is not None and not any(f.is_unusual for f in few.figures)
    assert {f.place for f in few.figures} == {"too few runs before to say"}
    assert normal_of(changes, "other") is None and normal_of(None, "reconcile") is None
    assert all(0 <= x <= 160 and 0 <= y <= 32 for x, y in points(read.values, 500))


def test_a_backfill_is_compared_with_backfills_over_a_range_of_about_its_length() -> None:
    """A week has more of everything than a day; which of them was longer says nothing about what is normal."""
    day, hour = 86_400_000, 3_600_000
    spans = [*(TimeRange(0, n * day) for n in (1, 7, 2, 30)), None]

    def changes(kind: RunKind) -> Changes:
        earlier = (EarlierRun(run_id="e", kind=kind, records_read=1, span=span) for span in spans)
        return Changes(records_read=9, earlier=tuple(earlier))

    def compared(length: int) -> int:
        found = normal_of(changes(RunKind.BACKFILL), "backfill", TimeRange(50 * day, 50 * day + length))
        return found.runs if found else 0

    assert [compared(n) for n in (hour, day, 2 * day, 6 * day, 40 * day)] == [0, 2, 2, 1, 1]
    found = normal_of(changes(RunKind.RECONCILE), "reconcile", TimeRange(0, day))
    assert found is not None and found.runs == len(spans), "a night has no range of its own"


def test_the_version_of_a_file_in_git(tmp_path) -> None:
    import subprocess

    file = tmp_path / "p.yaml"
    file.write_text("name: p\n")
    assert git_version(str(file)) is None and git_version(None) is None and git_version("nowhere.yaml") is None
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "p.yaml"), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    version = git_version(str(file))
    assert version is not None and (len(version.commit), version.path, version.is_changed) == (40, "p.yaml", False)
    file.write_text("name: q\n")
    changed = git_version(str(file))
    assert changed is not None and changed.in_words.endswith(":p.yaml, changed since that commit")
