"""The summary of a run that lists show, from the documents in its folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from spark_jobs.orchestration.run_ids import KINDS, dag_of
from spark_jobs.report.live_job import UNEXPLAINED
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, verdict_of
from spark_jobs.runs.figures import RunFigures
from spark_jobs.runs.status import Level, RunStatus
from spark_jobs.runs.store import CHANGES, GATE, OUTCOME, REQUEST, VERDICTS, RunFolder
from spark_jobs.runs.verdicts import Verdicts

log = logging.getLogger(__name__)

RUNNING = RunStatus.RUNNING
"""The status of a run without an outcome: it is running, or it was killed."""

DAMAGED = "damaged"
"""The status of a run of which a document cannot be read."""

_AFTER_REQUEST = (OUTCOME, CHANGES, GATE, VERDICTS)
_ENDED = ENDED_WELL | ENDED_BADLY | {RunStatus.DISCARDED}


@dataclass(frozen=True, slots=True)
class Run:
    """The summary of a run that a list shows.

    A field is None or empty where the run did not get that far. Instants are in UTC.

    `status`: the status in `outcome.json`, which may be a word that this version does not know; `running` where there
    is no outcome. `title`: the title of the verdict in the run's report; `status_title`: the title that all runs with
    this status share. `is_published`: readers see the changes; else publishing would make them. `changed`,
    `match_share`, `late_share`: see `spark_jobs.runs.figures`.
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
    run_id: str,
    request: Mapping[str, Any],
    outcome: Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None,
    gate: Mapping[str, Any] | None = None,
    verdicts: Mapping[str, Any] | None = None,
) -> Run:
    """The summary of a run from five of its documents. What they lack, or have in a wrong type, is None or empty."""
    said = outcome or {}
    pipeline = _text(request.get("pipeline"))
    figures = RunFigures.of(changes, said)
    status = _text(said.get("status"))
    ended = {**said, "status": status} if status else None
    verdict = verdict_of(ended, {}, _failing(gate))
    return Run(
        run_id=run_id,
        pipeline=pipeline,
        kind=_text(request.get("kind")),
        dag_id=dag_of(request),
        dag_run_id=_text(request.get("dag_run_id")) or None,
        status=status or RUNNING.value,
        level=verdict.level,
        title=verdict.title,
        status_title=verdict_of(ended, {}, []).title,
        message=_text(said.get("refusal") or said.get("message")),
        reason=_text(request.get("reason")),
        requested_by=_text(request.get("requested_by")),
        requested_at=_instant(request.get("requested_at")),
        finished_at=_instant(said.get("finished_at")),
        windows=figures.windows,
        changed=None if figures.by_change is None else dict(figures.by_change),
        match_share=figures.match_share,
        late_share=figures.late_share,
        is_published=status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED),
        unexplained_share=_unexplained_share(verdicts or {}),
    )


def _failing(gate: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    results = (gate or {}).get("results")
    return [r for r in results if isinstance(r, Mapping) and not r.get("success")] if isinstance(results, list) else []


def _unexplained_share(verdicts: Mapping[str, Any]) -> float | None:
    try:
        found = Verdicts.model_validate(verdicts)
    except ValidationError:
        return None
    share = found.share(*UNEXPLAINED)
    return None if share is None else min(max(share, 0.0), 1.0)


def _text(value: Any) -> str:
    """The value as text that can be encoded as UTF-8: JSON may hold halves of surrogate pairs."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _instant(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def read_run(folder: RunFolder) -> Run | None:
    """The run of a folder in short; None where there is no request.

    A run with a document that cannot be read is `DAMAGED`, with the document's name in its message; what its other
    documents say is shown. Raises OSError where the store itself does not answer.
    """
    documents: dict[str, dict[str, Any] | None] = {}
    damage = ""
    for name in (REQUEST, *_AFTER_REQUEST):
        try:
            documents[name] = _document(folder, name)
        except NotADirectoryError:
            return None
        except (ValueError, RecursionError, PermissionError, IsADirectoryError) as problem:
            documents[name] = None
            reason = next(iter(str(problem).splitlines()), "")[:200] or type(problem).__name__
            log.warning("run %s: %s cannot be read: %s", folder.run_id, name, reason)
            damage = damage or f"{name} cannot be read: {_text(reason)}"
    if not damage:
        request = documents[REQUEST]
        return None if request is None else run_of(folder.run_id, request, *(documents[n] for n in _AFTER_REQUEST))
    request = documents[REQUEST] or _request_by_name(folder.run_id)
    run = run_of(folder.run_id, request, None, documents[CHANGES], documents[GATE], documents[VERDICTS])
    return replace(run, status=DAMAGED, level=Level.BAD.value, title="Damaged", status_title="Damaged", message=damage)


def _document(folder: RunFolder, name: str) -> dict[str, Any] | None:
    content: Any = folder.read(name)
    if content is not None and not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    return content


def _request_by_name(run_id: str) -> dict[str, Any]:
    """What the name of a run's folder says of its request, `<pipeline>-<kind>-...`; empty for other names."""
    pipeline, _, rest = run_id.partition("-")
    kind = rest.partition("-")[0]
    return {"pipeline": pipeline, "kind": kind} if kind in KINDS else {}
