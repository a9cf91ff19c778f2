"""The runs of a store in short, for lists: read once, and again only where a run's folder has changed."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spark_jobs.orchestration.run_ids import dag_of
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, verdict_of
from spark_jobs.runs.store import CHANGES, GATE, OUTCOME, REQUEST, RunFolder, RunStore

log = logging.getLogger(__name__)

RUNNING = "running"
"""The status of a run without an outcome: it is at work, or it was killed."""

_ENDED = ENDED_WELL | ENDED_BADLY | {"discarded", "not_published"}
_AT_ONCE = 16
_LOOKED_AT_AGAIN = 50
_CHANGES = ("inserted", "updated", "retracted")


@dataclass(frozen=True, slots=True)
class Run:
    """A run in short.

    Instants are UTC; None where the run never got so far. `changed`: windows by change (inserted, updated, retracted).
    `match_share`: of the windows that were published before and computed again, the share that stays as it is.
    `title`: the verdict as its report has it; `status_title`: that of all runs with this status.
    `late_share`: of the pairs of record and window, the share that came after the window's close.
    """

    run_id: str
    pipeline: str
    kind: str
    dag_id: str | None
    dag_run_id: str | None
    status: str
    level: str
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

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDED


def run_of(
    run_id: str,
    request: Mapping[str, Any],
    outcome: Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None,
    gate: Mapping[str, Any] | None = None,
) -> Run:
    """The run in short, from four of its documents; what they lack or have of another kind is None or empty."""
    said = outcome or {}
    pipeline = _text(request.get("pipeline"))
    told = _mapping((changes or {}).get("counts"))
    changed = {kind: _count(told.get(kind)) or 0 for kind in _CHANGES} if changes is not None else None
    counts = {**_mapping(said.get("counts")), **(changes or {})}
    status = _text(said.get("status"))
    ended = {**said, "status": status} if status else None
    verdict = verdict_of(ended, {}, _failing(gate), None, None, "")
    return Run(
        run_id=run_id,
        pipeline=pipeline,
        kind=_text(request.get("kind")),
        dag_id=dag_of(request),
        dag_run_id=_text(request.get("dag_run_id")) or None,
        status=status or RUNNING,
        level=verdict["level"],
        title=verdict["title"],
        status_title=verdict_of(ended, {}, [], None, None, "")["title"],
        message=_text(said.get("message")),
        reason=_text(request.get("reason")),
        requested_by=_text(request.get("requested_by")),
        requested_at=_instant(request.get("requested_at")),
        finished_at=_instant(said.get("finished_at")),
        windows=_count(counts.get("windows")),
        changed=changed,
        match_share=_match_share(counts, changed),
        late_share=_late_share(counts),
    )


def _failing(gate: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    results = (gate or {}).get("results")
    return [r for r in results if isinstance(r, Mapping) and not r.get("success")] if isinstance(results, list) else []


def _match_share(counts: Mapping[str, Any], changed: Mapping[str, int] | None) -> float | None:
    before = _count(counts.get("windows_before"))
    if changed is None or not before:
        return None
    moved = min(changed["updated"] + changed["retracted"], before)
    return (before - moved) / before


def _late_share(counts: Mapping[str, Any]) -> float | None:
    pairs = [_count(counts.get(f"pairs_{name}")) for name in ("on_time", "late", "dropped")]
    if None in pairs or not sum(pairs):
        return None
    return (pairs[1] + pairs[2]) / sum(pairs)


def _text(value: Any) -> str:
    """As text that can be sent: JSON may hold halves of surrogate pairs."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and value >= 0 else None


def _instant(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Known:
    run: Run
    changed_at: float | None
    """When the folder had changed last, in epoch seconds; None where that cannot be relied on."""


class Runs:
    """All runs of a store, kept in memory between requests.

    A run is read again where its folder has changed since. Object stores do not tell that of a folder: there a run that
    has not ended is read each time, and of those that have, the ones that were looked at longest ago, a few each time.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Run]:
        """All runs that left a request, last requested first."""
        with self._lock:
            folders = self._store.folders()
            gone = self._known.keys() - folders.keys()
            for run_id in gone:
                del self._known[run_id]
            changed = [run_id for run_id, at in folders.items() if not self._is_fresh(run_id, at)]
            untold = [run_id for run_id in self._known if folders[run_id] is None and run_id not in changed]
            self._read({run_id: folders[run_id] for run_id in [*changed, *untold[:_LOOKED_AT_AGAIN]]})
            runs = [known.run for known in self._known.values()]
        return sorted(runs, key=_by_request, reverse=True)

    def now(self, runs: Iterable[Run]) -> list[Run]:
        """These runs as they are now; without those that have gone."""
        with self._lock:
            asked = [run.run_id for run in runs]
            self._read({i: None for i in asked if i in self._known and self._known[i].changed_at is None})
            return [self._known[run_id].run for run_id in asked if run_id in self._known]

    def _is_fresh(self, run_id: str, changed_at: float | None) -> bool:
        known = self._known.get(run_id)
        if known is None:
            return False
        return known.run.has_ended if changed_at is None else known.changed_at == changed_at

    def _read(self, folders: Mapping[str, float | None]) -> None:
        """Read these runs; the ones read last stand last in `_known`."""
        if not folders:
            return
        began = time.time()
        with ThreadPoolExecutor(min(_AT_ONCE, len(folders))) as pool:
            read = list(pool.map(lambda run_id: read_run(self._store.folder(run_id)), folders))
        for (run_id, changed_at), run in zip(folders.items(), read, strict=True):
            self._known.pop(run_id, None)
            if run is not None:
                # Within the file system's resolution a second change leaves the time of the first one.
                is_settled = changed_at is not None and changed_at < began - 2
                self._known[run_id] = _Known(run, changed_at if is_settled else None)


def _by_request(run: Run) -> tuple[datetime, str]:
    return run.requested_at or datetime.min.replace(tzinfo=UTC), run.run_id


def read_run(folder: RunFolder) -> Run | None:
    """The run of a folder in short; None where there is no request that can be read."""
    try:
        request, *rest = (folder.read(name) for name in (REQUEST, OUTCOME, CHANGES, GATE))
    except (ValueError, PermissionError, IsADirectoryError, NotADirectoryError) as problem:
        log.warning("run %s cannot be read: %s", folder.run_id, problem)
        return None
    if not isinstance(request, dict):
        return None
    return run_of(folder.run_id, request, *(part if isinstance(part, dict) else None for part in rest))
