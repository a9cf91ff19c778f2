"""The state machine of a run, its signs of life, and its documents. No Spark."""

from __future__ import annotations

import os
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs.errors import DocumentError, RunStateError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.runs.life.documents import Approval, Outcome, StagedRange
from spark_jobs.runs.life.lifecycle import TRANSITIONS, Event, next_status
from spark_jobs.runs.life.processes import SILENCE, STAGES_PROCESS, WAIT_LIMIT, Sign, sign_of, this_process
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 10, tzinfo=UTC)


def test_each_event_has_one_row_and_every_status_is_reached() -> None:
    assert [t.event for t in TRANSITIONS] == list(Event)
    assert {t.target for t in TRANSITIONS} == set(RunStatus) - {RunStatus.UNCHANGED}


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("status", [None, *RunStatus])
def test_what_the_table_does_not_allow_is_refused_with_a_sentence(event: Event, status: RunStatus | None) -> None:
    row = next(t for t in TRANSITIONS if t.event is event)
    if status in row.sources:
        assert next_status("r", status, event) is row.target
    else:
        with pytest.raises(RunStateError) as refused:
            next_status("r", status, event)
        assert refused.value.exit_code == 9 and refused.value.hint


def test_a_published_run_stays_published() -> None:
    assert [t.event for t in TRANSITIONS if RunStatus.PUBLISHED in t.sources] == []


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    rows = re.findall(r"^\| `([a-z ]+)` \| (.*?) \| `([a-z_]+)` \|", text, re.MULTILINE)
    documented = {event: (set(re.findall(r"`([a-z_]+)`", sources)), target) for event, sources, target in rows}
    for transition in TRANSITIONS:
        sources = {"none" if source is None else source.value for source in transition.sources}
        assert documented[transition.event.value] == (sources, transition.target.value)


def test_a_process_of_this_machine_is_alive_as_long_as_the_kernel_knows_it() -> None:
    host, pid, start = this_process().rsplit(":", 2)
    assert sign_of(this_process(), None, NOW) is Sign.ALIVE
    assert sign_of(f"{host}:{pid}:{int(start) + 1}", NOW, NOW) is not Sign.ALIVE, "another process with the same number"


def test_another_host_or_container_is_alive_until_it_is_silent_for_too_long() -> None:
    boot_and_namespace = this_process().rsplit(":", 2)[0].split("/")[1:]
    same_name = f"{socket.gethostname()}/{boot_and_namespace[0]}/1:{os.getpid()}:1"
    for process in ("elsewhere/1/2:7:8", same_name):
        assert sign_of(process, NOW - SILENCE + timedelta(seconds=1), NOW) is Sign.ALIVE
        assert sign_of(process, NOW - SILENCE - timedelta(seconds=1), NOW) is not Sign.ALIVE
        assert sign_of(process, None, NOW) is not Sign.ALIVE
    for hours in (-48, -1, 1, 48):  # its clock may be another one: whether it lives is to be seen
        assert sign_of("elsewhere/1/2:7:8", NOW + timedelta(hours=hours), NOW) is Sign.SILENT


def test_a_run_that_works_for_days_and_gives_signs_of_life_is_alive() -> None:
    assert sign_of("elsewhere/1/2:7:8", NOW - timedelta(minutes=3), NOW) is Sign.ALIVE


def test_between_stages_a_run_may_wait_for_a_week() -> None:
    assert sign_of(STAGES_PROCESS, NOW - WAIT_LIMIT + timedelta(seconds=1), NOW) is Sign.ALIVE
    assert sign_of(STAGES_PROCESS, NOW - WAIT_LIMIT - timedelta(seconds=1), NOW) is not Sign.ALIVE


def test_a_document_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunStore(str(tmp_path)).folder("r")
    Outcome(run_id="r", status=RunStatus.STAGED).write(folder)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Exception, match="No space left"):
            Outcome(run_id="r", status=RunStatus.PUBLISHED).write(folder)
    outcome = Outcome.read(folder)
    assert outcome is not None and outcome.status is RunStatus.STAGED
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["outcome.json"]


@pytest.mark.parametrize("content", ["", '{"run_id": "r", "sta', "[]", '{"run_id": "r", "status": "lost"}', "[" * 9999])
def test_a_damaged_document_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/outcome.json").write_text(content)
    with pytest.raises(DocumentError, match=r"damaged.*outcome\.json"):
        Outcome.read(RunStore(str(tmp_path)).folder("r"))


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunStore(str(tmp_path)).folder("r")
    staged = StagedRange(base=7, replaces=True, reach=TimeRange(1, 2), attempt="a", expected={"windows": (1, 2)})
    staged.write(folder)
    assert StagedRange.read(folder) == staged
    folder.write("approval.json", {"decision": "rejected", "by": "ann", "at": "now", "comment": "no"})
    approval = Approval.read(folder)
    assert approval is not None and approval.why == "rejected by ann: no"


@pytest.mark.parametrize("layout", [0, 2, "1", None])
def test_a_document_of_another_layout_is_refused(tmp_path: Path, layout: object) -> None:
    folder = RunStore(str(tmp_path)).folder("r")
    folder.write(Outcome.FILE, {"run_id": "r", "status": "published", "document_version": layout})
    with pytest.raises(DocumentError, match=r"has layout .*, .* reads layout 1.*outcome\.json"):
        Outcome.read(folder)
