"""The list of runs: its filter and its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.web.summary import Run

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
