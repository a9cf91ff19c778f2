"""Summaries of the runs of a store, for lists. A run is read once, and again only when its folder has changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from spark_jobs.orchestration.run_ids import KINDS, dag_of
from spark_jobs.report.live_job import UNEXPLAINED
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, Level, verdict_of
from spark_jobs.runs.figures import RunFigures
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import CHANGES, GATE, OUTCOME, REQUEST, VERDICTS, RunFolder, RunStore
from spark_jobs.runs.verdicts import Verdicts

log = logging.getLogger(__name__)

RUNNING = RunStatus.RUNNING
"""The status of a run without an outcome: it is running, or it was killed."""

DAMAGED = "damaged"
"""The status of a run of which a document cannot be read."""

_AFTER_REQUEST = (OUTCOME, CHANGES, GATE, VERDICTS)
_ENDED = ENDED_WELL | ENDED_BADLY | {RunStatus.DISCARDED}
_THREADS = 16
_READ_AGAIN = 50
"""Ended runs that one listing reads again, where the store does not say when a folder changed."""


@dataclass(frozen=True, slots=True)
class Run:
    """The summary of a run that a list shows.

    A field is None or empty where the run did not get that far. Instants are in UTC.

    `status`: the status in `outcome.json`, which may be a word that this version does not know; `running` where there
    is no outcome. `title`: the title of the verdict in the run's report; `status_title`: the title that all runs with
    this status share. `is_published`: readers see the changes; else publishing would make them. `changed`,
    `match_share`, `late_share`: see `spark_jobs.runs.figures`.
    `drift_share`: the share of windows of the live job that differ for no reason that the log gives, among those that
    were compared.
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
    drift_share: float | None = None

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
        message=_text(said.get("message")),
        reason=_text(request.get("reason")),
        requested_by=_text(request.get("requested_by")),
        requested_at=_instant(request.get("requested_at")),
        finished_at=_instant(said.get("finished_at")),
        windows=figures.windows,
        changed=None if figures.by_change is None else dict(figures.by_change),
        match_share=figures.match_share,
        late_share=figures.late_share,
        is_published=status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED),
        drift_share=_drift_share(verdicts or {}),
    )


def _failing(gate: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    results = (gate or {}).get("results")
    return [r for r in results if isinstance(r, Mapping) and not r.get("success")] if isinstance(results, list) else []


def _drift_share(verdicts: Mapping[str, Any]) -> float | None:
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


@dataclass(slots=True)
class _Known:
    run: Run
    changed_at: float | None
    """When the folder last changed, in epoch seconds; None where this time cannot be relied on."""


class Runs:
    """All runs of a store, kept in memory between requests.

    A thread reads the store, one at a time; a request waits for it `patience` seconds (None: to the end) and then gets
    what is known. So a slow store ties up no other request.

    A run is read again when its folder has changed. Object stores have no modification time for a folder. There a run
    that has not ended is read on every listing. Of the runs that have ended, each listing reads the 50 that were read
    longest ago.
    """

    def __init__(self, store: RunStore, patience: float | None = None) -> None:
        self._store = store
        self._patience = patience
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        """Held for moments only, never while the store is read."""
        self._reading: Future[None] | None = None
        self._is_complete = False

    def all(self) -> list[Run]:
        """All runs with a request, the last requested first.

        Raises OSError where the store does not answer, TimeoutError where it has not been read once yet.
        """
        reading = self._read_in_background()
        done, _ = wait([reading], self._patience)
        if done:
            reading.result()
        elif not self._is_complete:
            raise TimeoutError(f"the run store has not been read after {self._patience} s: {self._store.url}")
        with self._lock:
            runs = [known.run for known in self._known.values()]
        return sorted(runs, key=_by_request, reverse=True)

    def now(self, runs: Iterable[Run]) -> list[Run]:
        """These runs, read again where needed; without those that no longer exist."""
        run_ids = [run.run_id for run in runs]
        with self._lock:
            doubtful = [i for i in run_ids if i in self._known and self._known[i].changed_at is None]
        self._read(dict.fromkeys(doubtful))
        with self._lock:
            return [self._known[run_id].run for run_id in run_ids if run_id in self._known]

    def _read_in_background(self) -> Future[None]:
        """The reading that is under way, or a new one."""
        with self._lock:
            if self._reading is not None and not self._reading.done():
                return self._reading
            reading = self._reading = Future()

        def read() -> None:
            try:
                self._read_changed()
            except BaseException as problem:
                reading.set_exception(problem)
            else:
                reading.set_result(None)

        # A daemon: a store that hangs does not keep the server from ending.
        threading.Thread(target=read, name="reading the run store", daemon=True).start()
        return reading

    def _read_changed(self) -> None:
        folders = self._store.folders()
        with self._lock:
            for run_id in self._known.keys() - folders.keys():
                del self._known[run_id]
            changed = [run_id for run_id, at in folders.items() if not self._is_fresh(run_id, at)]
            again = set(changed)
            unknown_age = [run_id for run_id in self._known if folders[run_id] is None and run_id not in again]
        self._read({run_id: folders[run_id] for run_id in [*changed, *unknown_age[:_READ_AGAIN]]})
        self._is_complete = True

    def _is_fresh(self, run_id: str, changed_at: float | None) -> bool:
        known = self._known.get(run_id)
        if known is None:
            return False
        return known.run.has_ended if changed_at is None else known.changed_at == changed_at

    def _read(self, folders: Mapping[str, float | None]) -> None:
        """Read these runs; `_known` keeps them in the order in which they were read."""
        if not folders:
            return
        began = time.time()
        with ThreadPoolExecutor(min(_THREADS, len(folders))) as pool:
            read = list(pool.map(lambda run_id: read_run(self._store.folder(run_id)), folders))
        with self._lock:
            for (run_id, changed_at), run in zip(folders.items(), read, strict=True):
                self._known.pop(run_id, None)
                if run is not None:
                    # Two changes within the resolution of the file system's clock leave the same time.
                    is_reliable = changed_at is not None and changed_at < began - 2
                    self._known[run_id] = _Known(run, changed_at if is_reliable else None)


def _by_request(run: Run) -> tuple[datetime, str]:
    return run.requested_at or datetime.min.replace(tzinfo=UTC), run.run_id


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
