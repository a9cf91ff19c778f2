"""What the first screen of a report says: of a night without changes, five late rides, a live job that is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.orchestration.describe import approval_body
from spark_jobs.report.build import build_report
from spark_jobs.report.changed import bucket_width
from spark_jobs.runs.life.store import PAGE, RunFolder
from spark_jobs.runs.life.unfinished import record_end
from tests.report.documents import RESULT, changes, facts, gate, outcome, verdicts, written

WELL: dict[str, Any] = {"counts": {"match": 750}, "labels": {}, "fits": [], "top": [], "deployments": [],
                        "next_step": "There is nothing to do.", "stretches": [], "days": []}  # fmt: skip
WRONG = WELL | {
    "windows": 83, "counts": {"match": 42, "mismatch": 41}, "labels": {"mismatch": {"unexplained": 41}},
    "next_step": "Look at the windows that differ most: the source has changed, or the job has failed.",
}  # fmt: skip
RIDES: dict[str, Any] = {
    "windows": 5, "days": 1, "first_day": "2013-02-08", "last_day": "2013-02-08", "had": 1950, "back": 86_400_000,
    "keys": 1, "some_keys": [{"carrier": "Graz"}],
    "moves": [
        {"column": "flights", "aggregate": "flights", "windows": 0, "net": 0.0, "apart": 0.0, "of": 9000.0},
        {"column": "flights__complete", "aggregate": "flights", "windows": 5, "net": 5.0, "apart": 5.0, "of": 9100.0},
    ],
}  # fmt: skip
FIVE = changes(
    counts={"inserted": 12, "updated": 5, "was_open": 11}, causes={"late_arrivals": 5, "closed": 11, "backfill": 12},
    causes_by_change={"inserted": {"backfill": 12}, "updated": {"late_arrivals": 5}, "was_open": {"closed": 11}},
    windows=28, windows_recomputed=16, records_late=5, restated=RIDES,
)  # fmt: skip
RULE = "more than the tolerance allows: 0.26 % of the windows, and 0.2 % may change"
WHY = f"5 of the 1,950 windows that readers had on 8 February 2013 (0.26 %; Graz) change, {RULE}"
LATE = facts()["late"] | {"records": 5, "basis": 120}
NONE = facts() | {"changes": None}


def nothing_changed(folder: Path) -> RunFolder:
    same = changes(counts={}, causes={}, causes_by_change={}, restated={"windows": 0}, windows_recomputed=768)
    said = outcome("unchanged", changes={})
    return written(folder, changes=same, outcome=said, verdicts=verdicts(**WELL), facts=NONE, gate=gate([RESULT]))


def five_late_rides(folder: Path, status: str = "awaiting_approval") -> RunFolder:
    said = outcome(
        status, message=WHY, decision={"action": "ask", "why": WHY, "rule": RULE}, hint="", changes=FIVE["counts"]
    )
    return written(folder, changes=FIVE, outcome=said, verdicts=verdicts(**WELL), facts=facts(late=LATE))


def wrong_live_job(folder: Path) -> RunFolder:
    return written(
        folder, verdicts=verdicts(**WRONG), changes=FIVE, outcome=outcome("published", changes=FIVE["counts"])
    )


def first_screen(run: RunFolder, opened: Callable) -> tuple[str, str]:
    """The text that is seen without scrolling, and the class of the box that gives it its colour."""
    build_report(run)
    page = opened(Path(run.address(PAGE)))
    if folder := os.environ.get("SCREENSHOTS"):
        name = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split()[0]
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
    seen = page.evaluate(
        """[...document.querySelectorAll('main h2, main h3, main p, main li, main dt, main dd')]
           .filter(e => e.getBoundingClientRect().bottom <= innerHeight).map(e => e.innerText).join('\\n')"""
    )
    return seen, page.locator("section.verdict .box").get_attribute("class") or ""


def test_a_night_without_a_change_says_that_there_is_nothing_to_do(tmp_path, opened) -> None:
    seen, box = first_screen(nothing_changed(tmp_path), opened)
    assert "good" in box and "There is nothing to do." in seen
    assert "no window changes" in seen
    assert "750 windows of the live job were compared: the log explains every difference." in seen


def test_five_late_rides_say_direction_and_amount_then_why_then_what_to_do(tmp_path, opened) -> None:
    seen, box = first_screen(five_late_rides(tmp_path), opened)
    parts = [
        "Faithful values: none changes; complete values: flights +5 (+0.05 %), in 5 of the 1,950 windows that readers",
        "Why: 5 late_arrivals (more records of the window have arrived since the run before).",
        f"Asked because: {RULE}.",
        "What to do next",
    ]
    places = [seen.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), seen
    assert "waiting" in box
    page = next(tmp_path.rglob("report.html")).read_text()
    assert "4.2 % of the 120 records that this run read new" in page
    assert ", waiting since 2013-04-01 05:02:03 UTC" in page and ", ended " not in page
    assert "12 windows inserted, 5 updated, 11 that had been open before" in seen


def test_a_page_has_one_late_share_and_the_table_above_the_question_has_three_lines_behind_it(tmp_path) -> None:
    run = five_late_rides(tmp_path)
    report = build_report(run)
    assert report.changes is not None and "%" not in "".join(report.changes.in_words.values())
    body = approval_body(run)
    table, lines = body.split("| ---: |\n")[1].split("\n\n", 1)
    assert table.count("\n") <= 4 and "| was open | 11 |" in table
    assert len([line for line in lines.splitlines() if line.startswith("- ")]) <= 3
    assert body.startswith("**Faithful values: none changes; complete values:")


@pytest.mark.parametrize(("wrong", "level"), [(41, "bad"), (1, "note")])
def test_a_wrong_live_job_is_no_green_page(tmp_path, opened, wrong, level) -> None:
    run = wrong_live_job(tmp_path)
    run.write(
        "verdicts.json", verdicts(**WRONG | {"windows": 830, "counts": {"match": 830 - wrong, "mismatch": wrong}})
    )
    seen, box = first_screen(run, opened)
    assert level in box
    assert f"830 windows of the live job were compared: {wrong} (" in seen
    assert "differ for no reason that the log gives" in seen and "the live job differs" in seen
    assert "There is nothing to do" not in seen
    assert "See the section The live job. Look at the windows that differ most" in seen


@pytest.mark.parametrize(
    "given", [{"decision": "rejected", "by": "ada", "at": "2013-04-01T06:00:00Z", "comment": "no"}, None]
)
def test_what_a_person_wrote_is_quoted_and_no_advice(tmp_path, given) -> None:
    run = five_late_rides(tmp_path, "rejected")
    run.write("outcome.json", outcome("rejected", message="Sample only", changes=FIVE["counts"]))
    if given:
        run.write("approval.json", given)
    verdict = build_report(run).verdict
    said = "(ada, 2013-04-01 06:00:00 UTC): “no”" if given else "(2013-04-01 05:02:03 UTC): “Sample only”"
    assert f"A person said no {said}." in verdict.sentence
    assert not any("Sample only" in step.text for step in verdict.next)


def test_a_run_that_somebody_interrupted_is_not_at_work(tmp_path, opened) -> None:
    run = written(tmp_path, **dict.fromkeys(("outcome", "gate", "facts", "changes", "verdicts")))
    record_end(run, datetime(2013, 4, 1, 5, 2, tzinfo=UTC), "it was interrupted; nothing was published")
    seen, box = first_screen(run, opened)
    assert "bad" in box and "it was interrupted; nothing was published" in seen
    assert "Start it again: what it had staged is then dropped." in seen
    assert "At work" not in seen and "Wait" not in seen


@pytest.mark.parametrize("minutes", [1, 7, 30, 1440])
def test_no_bar_is_narrower_than_the_step_of_the_windows(minutes: int) -> None:
    for hours in (1, 48, 2000):
        assert bucket_width(0, hours * HOUR, least=minutes * MINUTE) >= minutes * MINUTE
