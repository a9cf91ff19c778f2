"""The summary of a run that lists show, from the documents in its folder.

Those of ended runs are kept in a file of this user: a new process need not read the documents of each run again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from spark_jobs import __version__
from spark_jobs.atomic import replace_file
from spark_jobs.errors import DocumentError, EnvironmentSetupError
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.orchestration.run_ids import KINDS, dag_id_of
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, verdict_of
from spark_jobs.runs.life.documents import AnyOutcome, Changes, Document, Gate, Request
from spark_jobs.runs.life.status import Level, RunKind, RunStatus
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.figures import RunFigures
from spark_jobs.settings import cache_folder

log = logging.getLogger(__name__)

RUNNING = RunStatus.RUNNING
"""The status of a run without an outcome: it is running, or it was killed."""

DAMAGED = "damaged"
"""The status of a run of which a document cannot be read."""

_ENDED = ENDED_WELL | ENDED_BADLY | {status for status in RunStatus if status.is_refused}


@dataclass(frozen=True, slots=True)
class Run:
    """The summary of a run that a list shows.

    A field is None or empty where the run did not get that far. Instants are in UTC.

    `status`: the status in `outcome.json`, which may be a word that this version does not know; `running` where there
    is no outcome. `title`: the title of the verdict in the run's report; `status_title`: the title that all runs with
    this status share. `is_published`: readers see the changes; else publishing would make them. `changed`,
    `match_share`, `late_share`: see `spark_jobs.runs.work.figures`.
    `unexplained_share`: the share of windows of the live job that differ for no reason that the log gives, among those
    that were compared.
    """

    run_id: str
    pipeline: str
    kind: str
    dag_id: str | None
    dag_run_id: str | None
    status: str
    level: Level
    title: str
    status_title: str
    message: str
    reason: str
    requested_by: str
    requested_at: datetime | None
    finished_at: datetime | None
    windows: int | None
    changed: dict[str, int] | None
    match_share: float | None
    late_share: float | None
    is_published: bool
    unexplained_share: float | None = None

    @property
    def known_status(self) -> RunStatus | None:
        """The status; None for `DAMAGED` and for words that this version does not know."""
        return next((status for status in RunStatus if status == self.status), None)

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDED


def run_of(
    request: Request,
    outcome: AnyOutcome | None = None,
    changes: Changes | None = None,
    gate: Gate | None = None,
    verdicts: Verdicts | None = None,
) -> Run:
    """The summary of a run from five of its documents."""
    figures = RunFigures.of(changes, outcome)
    verdict = verdict_of(outcome, {}, gate.failures if gate else [], live=verdicts)
    status = outcome.known_status if outcome else None
    unexplained = verdicts.share(*UNEXPLAINED) if verdicts else None
    return Run(
        run_id=request.run_id,
        pipeline=_sendable(request.pipeline),
        kind=request.kind,
        dag_id=request.dag_id or dag_id_of(request.kind, request.pipeline),
        dag_run_id=_sendable(request.dag_run_id or "") or None,
        status=_sendable(outcome.status) if outcome else RUNNING,
        level=verdict.level,
        title=verdict.title,
        status_title=verdict_of(outcome, {}, []).title,
        message=_sendable(outcome.refusal or outcome.message) if outcome else "",
        reason=_sendable(request.reason),
        requested_by=_sendable(request.requested_by),
        requested_at=_instant(request.requested_at),
        finished_at=_instant(outcome.finished_at) if outcome else None,
        windows=figures.windows,
        changed=None if figures.by_change is None else dict(figures.by_change),
        match_share=figures.match_share,
        late_share=figures.late_share,
        is_published=status is not None and status.is_published,
        unexplained_share=None if unexplained is None else min(max(unexplained, 0.0), 1.0),
    )


def _sendable(text: str) -> str:
    """The text as UTF-8 can have it: JSON may hold halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _instant(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text or "")
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def read_run(folder: RunFolder) -> Run | None:
    """The run of a folder in short; None where there is no request.

    A run with a document that cannot be read is `DAMAGED`, with the document's name in its message; what its other
    documents say is shown. Raises OSError where the store itself does not answer.
    """
    damage = ""

    def read(kind: type[Document]) -> Any:
        nonlocal damage
        try:
            return kind.read(folder)
        except (DocumentError, PermissionError, IsADirectoryError) as problem:
            what = problem.what if isinstance(problem, DocumentError) else str(problem)
            log.warning("run %s: %s cannot be read: %s", folder.run_id, kind.FILE, what)
            damage = damage or f"{kind.FILE} cannot be read: {_sendable(what[:200])}"

    try:
        request = read(Request)
    except NotADirectoryError:
        return None
    if request is None and not damage:
        return None
    outcome, *others = (read(kind) for kind in (AnyOutcome, Changes, Gate, Verdicts))
    run = run_of(request or _request_by_name(folder.run_id), None if damage else outcome, *others)
    run = replace(run, run_id=folder.run_id)
    if not damage:
        return run
    dag_id = run.dag_id if run.pipeline else None
    damaged = {"status": DAMAGED, "level": Level.BAD, "title": "Damaged", "status_title": "Damaged", "message": damage}
    return replace(run, dag_id=dag_id, **damaged)


def _request_by_name(run_id: str) -> Request:
    """What the name of a run's folder says of its request, `<pipeline>-<kind>-...`; of other names no pipeline."""
    pipeline, _, rest = run_id.partition("-")
    kind = rest.partition("-")[0]
    known = kind in KINDS
    return Request(run_id=run_id, pipeline=pipeline if known else "", kind=RunKind(kind) if known else RunKind.BACKFILL)


_SUMMARIES = TypeAdapter(dict[str, tuple[float, Run]])


def kept_summaries(url: str) -> Path:
    """The file for the run store at this address."""
    return cache_folder() / f"runs-{__version__}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def read_summaries(file: Path) -> dict[str, tuple[float, Run]]:
    """By run id: when its folder had changed (epoch seconds), and its summary; empty for what cannot be read."""
    with suppress(OSError, ValidationError):
        return _SUMMARIES.validate_json(file.read_bytes())
    return {}


def keep_summaries(file: Path, summaries: Mapping[str, tuple[float, Run]]) -> None:
    """Write what `read_summaries` reads; where nothing can be written, nothing is kept."""
    with suppress(OSError, EnvironmentSetupError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, _SUMMARIES.dump_json(dict(summaries)), mode=0o600)
