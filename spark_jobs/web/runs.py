"""The list of runs: their summaries, its filter and its pages.

A run is read once, and again only when its folder has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from spark_jobs.runs.life.store import RunStore
from spark_jobs.web.summary import Run, keep_summaries, read_run, read_summaries

_THREADS = 16
_READ_AGAIN = 50
"""Ended runs that one listing reads again, where the store does not say when a folder changed."""


_NOT_KEPT = 100
"""So many summaries are read again rather than kept: to write the file takes longer."""


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

    `kept`: a file that keeps the summaries of ended runs for the next process, see `spark_jobs.web.summary`.
    """

    def __init__(self, store: RunStore, patience: float | None = None, kept: Path | None = None) -> None:
        self._store = store
        self._kept = kept
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
        if self._kept is not None and not self._is_complete:
            kept = {run_id: _Known(run, at) for run_id, (at, run) in read_summaries(self._kept).items()}
            with self._lock:
                self._known = {**kept, **self._known}
        with self._lock:
            for run_id in self._known.keys() - folders.keys():
                del self._known[run_id]
            changed = [run_id for run_id, at in folders.items() if not self._is_fresh(run_id, at)]
            again = set(changed)
            unknown_age = [run_id for run_id in self._known if folders[run_id] is None and run_id not in again]
        self._read({run_id: folders[run_id] for run_id in [*changed, *unknown_age[:_READ_AGAIN]]})
        self._is_complete = True
        if self._kept is not None and len(changed) > _NOT_KEPT:
            with self._lock:
                known = [(i, k) for i, k in self._known.items() if k.run.has_ended and k.changed_at is not None]
            keep_summaries(self._kept, {run_id: (one.changed_at or 0.0, one.run) for run_id, one in known})

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


PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter for runs; empty or None means all. `since` and `until` are days in UTC, both included."""

    pipeline: str = ""
    status: str = ""
    since: date | None = None
    until: date | None = None

    def takes(self, run: Run) -> bool:
        """Whether the filter lets `run` through."""
        return (not self.status or run.status == self.status) and self.takes_any_status(run)

    def takes_any_status(self, run: Run) -> bool:
        """Like `takes`, but the status is not checked."""
        if self.pipeline and run.pipeline != self.pipeline:
            return False
        if self.since is None and self.until is None:
            return True
        if run.requested_at is None:
            return False
        day = run.requested_at.date()
        return (self.since is None or day >= self.since) and (self.until is None or day <= self.until)

    def query(self) -> dict[str, str]:
        """The query parameters of the page's address."""
        fields = {
            "pipeline": self.pipeline,
            "status": self.status,
            "from": self.since.isoformat() if self.since else "",
            "to": self.until.isoformat() if self.until else "",
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Page:
    """The runs of one page. Pages are numbered from 1; `total` is the number of runs on all pages."""

    runs: list[Run]
    total: int
    page: int
    pages: int


def page_of(runs: Sequence[Run], page: int, per_page: int = PER_PAGE) -> Page:
    """Page number `page` of `runs`, or the last page where there are fewer."""
    pages = max(1, -(-len(runs) // per_page))
    page = min(page, pages)
    return Page(list(runs[(page - 1) * per_page : page * per_page]), len(runs), page, pages)
