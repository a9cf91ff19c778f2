"""The verdict of a report: how the run ended, in a sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.errors import CatalogError, EnvironmentSetupError, SourceError
from spark_jobs.formatting import iso, percent, plain, plural, written_time
from spark_jobs.lakehouse.change import RESTATED, WindowChange
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.quality.suites import Severity
from spark_jobs.report.causes import CAUSES
from spark_jobs.report.counted import TopWindow
from spark_jobs.report.model import NextStep, Verdict
from spark_jobs.report.pages import decision_page, key_texts, look_page, window_page
from spark_jobs.runs.life.documents import AnyOutcome, Approval, Changes, ExpectationResult
from spark_jobs.runs.life.status import Level, RunStatus
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.looks import Subject
from spark_jobs.runs.work.figures import bookkeeping_in_words, changes_in_words
from spark_jobs.runs.work.unmet import closed_in_words, expectation_name, null_key_ways

UNKNOWN = "unknown"
"""The status in the report of a run that has written no outcome: it is running, or it was killed."""

_MACHINE = frozenset({SourceError.exit_code, CatalogError.exit_code, EnvironmentSetupError.exit_code})
"""Exit codes of what doctor looks at: the history's source, the catalog, the machine."""
ENDED_WELL = frozenset(status for status in RunStatus if status.is_success)
_SAID_ABOVE = (RunStatus.FAILED, RunStatus.GATE_FAILED, RunStatus.REJECTED, RunStatus.DISCARDED)
"""The verdict's sentence has the run's own message."""
_WAITING = frozenset(status for status in RunStatus if status.waits)
"""Their next steps stand for the hint of the outcome."""
ENDED_BADLY = frozenset(status for status in RunStatus if status.is_failure)


@dataclass(frozen=True, slots=True)
class Origin:
    """How the reader of a report acts on a run: in Airflow where a DAG carried it out, else on the command line."""

    run_id: str
    dag_id: str | None

    @property
    def publish_command(self) -> str:
        return f'rewindow publish {shlex.quote(self.run_id)} --reason "..."'

    @property
    def report_command(self) -> str:
        return f"rewindow report {shlex.quote(self.run_id)}"

    def approval(self, pipeline: str) -> list[NextStep]:
        """How to answer a run that waits for an approval."""
        if self.dag_id:
            return [
                NextStep(
                    text="Then approve or reject the run in Airflow: answer the task `approve`. If that task has "
                    f"ended, trigger the DAG `decide__{plain(pipeline)}` with this run.",
                    page=decision_page(self.run_id),
                    label="Open its form",
                )
            ]
        return [
            NextStep(text="Then approve it:", command=self.publish_command),
            NextStep(text="Or reject it:", command=f"rewindow discard {shlex.quote(self.run_id)}"),
        ]

    def override(self, pipeline: str) -> list[NextStep]:
        """How to publish in spite of a closed gate, or to discard."""
        if self.dag_id:
            text = f"trigger the DAG `decide__{plain(pipeline)}` with the run `{plain(self.run_id)}` and a reason."
            return [
                NextStep(
                    text=f"To publish in spite of the gate, or to discard what is staged, {text}",
                    page=decision_page(self.run_id),
                    label="Open its form",
                )
            ]
        return [
            NextStep(text="To publish in spite of the gate:", command=self.publish_command),
            NextStep(text="To discard what is staged:", command=f"rewindow discard {shlex.quote(self.run_id)}"),
        ]


def _steps(*texts: str) -> list[NextStep]:
    return [NextStep(text=text) for text in texts]


def verdict_of(
    outcome: AnyOutcome | None,
    changes: Mapping[str, int],
    failing: Sequence[ExpectationResult],
    approval: Approval | None = None,
    table: str | None = None,
    pipeline: str = "",
    top: Sequence[TopWindow] = (),
    *,
    reader: Origin | None = None,
    at_work: str | None = None,
    said: Changes | None = None,
    live: Verdicts | None = None,
) -> Verdict:
    """The verdict on a run.

    Args:
        outcome: the document `outcome.json`; None where the run has written none.
        changes: the number of windows for each `WindowChange`.
        failing: the results of the expectations that failed, the worst first.
        approval: the document `approval.json`.
        table: the published table.
        pipeline: the name of the pipeline.
        top: the windows with the largest changes, as in the report.
        reader: how the reader acts on the run; None: nobody acts.
        at_work: since when and in which stage the run is, where it has no outcome.
        said: the document `changes.json`.
        live: the document `verdicts.json`.
    """
    ended = outcome or AnyOutcome(status=RunStatus.RUNNING)
    status, known = None if outcome is None else outcome.status, ended.known_status
    level, title = (Level.WAITING, plain(status)) if known is None else (known.level, known.title)
    critical = [r for r in failing if r.severity == Severity.CRITICAL]
    warnings = [r for r in failing if r.severity == Severity.WARNING]
    if status in ENDED_WELL and warnings:
        level, title = Level.NOTE, f"{title}, with {plural(len(warnings), 'warning')}"
    if status in ENDED_WELL and (of_live := level_of(live)) is not None:
        level, title = of_live, f"{title}, {'and' if ',' not in title else 'but'} the live job differs"
    return Verdict(
        status=status or UNKNOWN,
        level=level,
        title=title,
        sentence=_sentence(status, ended, changes, critical, approval, table, at_work),
        restated=said.restated.in_words() if said and said.restated and changes else "",
        why=_why(said, ended) if said else "",
        live=live_in_words(live) if live else "",
        next=(
            *(NextStep(text=text) for text in _messages(status, ended)),
            *_of_live(live),
            *_next_steps(status, ended, changes, critical, reader or Origin("", None), pipeline),
            *_reading(status, ended, warnings, is_done=not _of_live(live)),
            *_history(status, pipeline, top, in_airflow=reader is not None and reader.dag_id is not None),
        ),
    )


def _sentence(
    status: str | None,
    outcome: AnyOutcome,
    changes: Mapping[str, int],
    critical: Sequence[ExpectationResult],
    approval: Approval | None,
    table: str | None,
    at_work: str | None,
) -> str:
    where = f" in {table}" if table else ""
    changed = changes_in_words(changes)
    kept = bookkeeping_in_words(changes.get(WindowChange.BOOKKEEPING, 0))
    match status:
        case RunStatus.PUBLISHED:
            return f"The run is published{where}: {changed}." + (f" {kept}." if kept else "")
        case RunStatus.UNCHANGED:
            return f"The published windows{where} already have the values that the run computed: no window changes."
        case RunStatus.AWAITING_APPROVAL | RunStatus.STAGED:
            return f"Nothing is published yet. Publishing would change{where}: {changed}."
        case RunStatus.GATE_FAILED:
            return (
                f"{closed_in_words(critical)}, so nothing is published{where}. The run would have changed: {changed}."
            )
        case RunStatus.REJECTED:
            said = _said_by(approval, outcome)
            return f"A person said no{said}. Nothing is published{where}. The run would have changed: {changed}."
        case RunStatus.DRY_RUN:
            return f"This was a dry run: nothing is published{where}. A real run would change: {changed}."
        case RunStatus.COMPARED_ONLY:
            return (
                f"The run compared its windows with the published ones and published nothing{where}. "
                f"It would have changed: {changed}."
            )
        case RunStatus.ABANDONED:
            return "The run was killed, or it waited too long. Its staged windows were deleted. Nothing is published."
        case RunStatus.DISCARDED:
            return f"A person discarded the run{_said_by(approval, outcome)}. Nothing of it is published."
        case RunStatus.FAILED:
            stage = f" in the stage {outcome.stage}" if outcome.stage else ""
            where = f" ({plain(outcome.where, 300)})" if outcome.where else ""
            message = plain(outcome.message or "there is no error message", 500)
            return f"The run failed{stage}: {message}{where}"
        case None:
            return f"The run is at work{plain(at_work or '')}. Nothing of it is published yet."
        case _:
            return f"The run ended with the status {plain(status)}."


_BADLY = 0.01
"""A live job of which more than one window in a hundred differs is wrong; below that it has a note."""


def level_of(live: Verdicts | None) -> Level | None:
    """How bad it is what the live job emitted; None: the log explains every difference, or nothing was compared."""
    if live is None or not live.unexplained:
        return None
    return Level.BAD if (live.share(*UNEXPLAINED) or 0) > _BADLY else Level.NOTE


def live_in_words(live: Verdicts) -> str:
    """What the live job's windows are worth, in a sentence."""
    if live.problem:
        return f"What the live job emitted could not be compared: {plain(live.problem, 300)}."
    if not live.windows:
        return ""
    compared = f"{plural(live.windows, 'window')} of the live job {'was' if live.windows == 1 else 'were'} compared"
    if not live.unexplained:
        return f"{compared}: the log explains every difference."
    different = ", ".join(f"{live.counts[name]:,} {name}" for name in UNEXPLAINED if live.counts.get(name))
    share = percent(live.unexplained, live.windows)
    return f"{compared}: {live.unexplained:,} ({share}) differ for no reason that the log gives ({different})."


def _of_live(live: Verdicts | None) -> list[NextStep]:
    """What to do about a live job that is wrong, or that could not be compared."""
    if live is None or not (live.unexplained or live.problem):
        return []
    return [NextStep(text=f"See the section The live job. {plain(live.next_step, 300)}".strip())]


def _why(said: Changes, outcome: AnyOutcome) -> str:
    """The causes of what changes for those who have seen it, and what was decisive for the tolerance."""
    causes: dict[str, int] = {}
    for change in RESTATED:
        for cause, n in said.causes_by_change.get(change, {}).items():
            causes[cause] = causes.get(cause, 0) + n
    parts = [f"{n:,} {cause} ({CAUSES.get(cause, 'an unknown cause')})" for cause, n in sorted(causes.items())]
    decision = outcome.decision or {}
    rule = decision.get("rule") or decision.get("why") or ""
    asked = f"{'Asked' if outcome.status in _WAITING else 'Decided'} because: {plain(rule, 500)}." if rule else ""
    return " ".join(filter(None, (f"Why: {'; '.join(parts)}." if parts else "", asked)))


def _messages(status: str | None, outcome: AnyOutcome) -> list[str]:
    """What the run says of itself, unless the verdict's sentence says it. A person's words stand beside the person."""
    is_said = status in (*_SAID_ABOVE, *_WAITING)
    refused = outcome.refusal
    refusal = refused and f"The last attempt to publish or to discard it was refused: {refused}"
    message = None if is_said else outcome.message
    if message and status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED):
        message = f"Published with the reason: {quoted(message)}"
    messages = [message, refusal, outcome.note]
    return [_as_sentence(plain(text, 500)) for text in messages if text]


def _next_steps(
    status: str | None,
    outcome: AnyOutcome,
    changes: Mapping[str, int],
    critical: Sequence[ExpectationResult],
    reader: Origin,
    pipeline: str,
) -> list[NextStep]:
    retracted = changes.get(WindowChange.RETRACTED, 0)
    restated = changes.get(WindowChange.UPDATED, 0) + retracted
    match status:
        case RunStatus.STAGED:
            return [
                NextStep(text="The task `publish` follows. You need not do anything while it is running.")
                if reader.dag_id
                else NextStep(text="To publish what is staged:", command=reader.publish_command)
            ]
        case RunStatus.AWAITING_APPROVAL:
            remove = f"{plural(retracted, 'window')} would be removed: find out why before you approve."
            return [
                *_steps("Read below what changed and why.", *([remove] if retracted else [])),
                *reader.approval(pipeline),
            ]
        case RunStatus.GATE_FAILED:
            names = "; ".join(
                f"\N{LEFT DOUBLE QUOTATION MARK}{expectation_name(r)}\N{RIGHT DOUBLE QUOTATION MARK}"
                for r in critical[:3]
            )
            rows = " The section Expectations shows sample rows." if any(r.samples for r in critical) else ""
            ways = dict.fromkeys(filter(None, (null_key_ways(r, pipeline) for r in critical)))
            return [
                *_steps(
                    f"Start with what was expected and did not hold: {names}.{rows}",
                    *ways,
                    "Correct the source or the definition, or change the expectation if it is too strict. "
                    "Then run again.",
                ),
                *reader.override(pipeline),
            ]
        case RunStatus.FAILED:
            again = "Then clear the failed task." if reader.dag_id else "Then run again."
            looks = reader.dag_id and outcome.exit_code in _MACHINE
            text = f"The DAG `look__{plain(pipeline)}` checks what a run needs, from the history to the catalog."
            doctor = NextStep(text=text, page=look_page(pipeline, Subject.DOCTOR), label="Check it")
            return [
                NextStep(text=plain(outcome.hint or f"Read the log of the stage that failed. {again}", 500)),
                *([doctor] if looks else []),
                NextStep(text="The published windows have not changed."),
            ]
        case RunStatus.REJECTED | RunStatus.DISCARDED:
            return _steps("The published windows have not changed. Correct what led to the answer, then run again.")
        case RunStatus.DRY_RUN:
            again = "run the same without --dry-run"
            how = "trigger the DAG with the same form and no dry run" if reader.dag_id else again
            return _steps(f"To publish these changes, {how}.")
        case RunStatus.COMPARED_ONLY:
            return _steps(
                "Either a newer run has already published, or this run was requested to compare only. "
                "There is nothing to do."
            )
        case RunStatus.PUBLISHED if restated:
            return _steps("Readers of the table now see the new values. The old values are kept as revisions.")
        case None:
            how = "clear the task that was at work" if reader.dag_id else "start it again"
            return [
                NextStep(text="Wait: the page loads itself again. Each part of it appears when the run has got there.")
                if reader.dag_id
                else NextStep(text="Wait, then build this page again:", command=reader.report_command),
                *_steps(f"If the run was killed, {how}. What was staged is then dropped."),
            ]
        case _:
            return []


def _reading(
    status: str | None, outcome: AnyOutcome, warnings: Sequence[ExpectationResult], *, is_done: bool
) -> list[NextStep]:
    """What is left to read, or that there is nothing to do."""
    steps = []
    if warnings:
        steps.append(NextStep(text=f"Read {plural(len(warnings), 'warning')} in the section Expectations."))
    elif status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED) and is_done:
        steps.append(NextStep(text="There is nothing to do."))
    is_said = status in (RunStatus.FAILED, RunStatus.PUBLISHED, RunStatus.UNCHANGED)
    if outcome.hint and not is_said and not (status in _WAITING and not outcome.note):
        steps.append(NextStep(text=plain(outcome.hint, 500)))
    return steps


def _history(status: str | None, pipeline: str, top: Sequence[TopWindow], *, in_airflow: bool) -> list[NextStep]:
    """The way to the revisions of the window with the largest change.

    Empty where no window had a value before, or where the window's key is too long or not printable.
    """
    window = next((w for w in top if w.before is not None), None)
    if status not in (RunStatus.PUBLISHED, RunStatus.AWAITING_APPROVAL) or not pipeline or window is None:
        return []
    text, values = "To see all revisions of the window with the largest change:", key_texts(window)
    if values is None:
        return []
    if in_airflow:
        text = f"The DAG `look__{plain(pipeline)}` shows all revisions of the window with the largest change."
        return [NextStep(text=text, page=window_page(pipeline, window), label="Look at them")]
    keys = " ".join(f"--key {shlex.quote(f'{name}={v}')}" for name, v in values.items())
    return [
        NextStep(text=text, command=f"rewindow revisions {shlex.quote(pipeline)} --window {iso(window.start)} {keys}")
    ]


def quoted(words: str) -> str:
    """A person's words, as theirs."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{plain(words, 500)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _said_by(approval: Approval | None, outcome: AnyOutcome) -> str:
    """Who said no, when and in which words, as far as it is known: by a click, or from a form or the command line."""
    if approval is not None:
        at = f", {written_time(approval.at)} UTC" if approval.at else ""
        return f" ({plain(approval.by or 'somebody')}{at})" + (
            f": {quoted(approval.comment)}" if approval.comment else ""
        )
    at = f" ({written_time(outcome.finished_at)} UTC)" if outcome.finished_at else ""
    return at + (f": {quoted(outcome.message)}" if outcome.message else "")


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
