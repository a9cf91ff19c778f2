"""The list of runs: what is asked for, and one page of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.web.runs import Run

PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs: empty or None means all. `since` and `until` are days in UTC, both included."""

    pipeline: str = ""
    status: str = ""
    since: date | None = None
    until: date | None = None

    def takes(self, run: Run) -> bool:
        return (not self.status or run.status == self.status) and self.takes_but_for_status(run)

    def takes_but_for_status(self, run: Run) -> bool:
        if self.pipeline and run.pipeline != self.pipeline:
            return False
        if self.since is None and self.until is None:
            return True
        if run.requested_at is None:
            return False
        day = run.requested_at.date()
        return (self.since is None or day >= self.since) and (self.until is None or day <= self.until)

    def query(self) -> dict[str, str]:
        """As the address of a page has it."""
        fields = {
            "pipeline": self.pipeline,
            "status": self.status,
            "from": self.since.isoformat() if self.since else "",
            "to": self.until.isoformat() if self.until else "",
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Page:
    """Runs of one page. Pages count from 1; `total` counts the runs of all pages."""

    runs: list[Run]
    total: int
    page: int
    pages: int


def page_of(runs: Sequence[Run], page: int, per_page: int = PER_PAGE) -> Page:
    """The runs of a page; of the last one where there are fewer pages."""
    pages = max(1, -(-len(runs) // per_page))
    page = min(page, pages)
    return Page(list(runs[(page - 1) * per_page : page * per_page]), len(runs), page, pages)
