"""`corrections.json`: what the readers of the live job's output get of a run. No Spark in this module."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from spark_jobs.formatting import plural
from spark_jobs.runs.life.documents import Document


class DeliveredCorrections(Document):
    """`corrections.json`: by action (`upsert`, `delete`) the rows that go to the destination.

    `planned`: before the run is published; `delivered`: after it. `value`: faithful or complete. `problem`: why they
    could not be delivered, with `exit_code`; the run is published all the same. `deliveries`: their ids.
    """

    FILE: ClassVar[str] = "corrections.json"

    destination: str
    value: str = ""
    planned: dict[str, int] = Field(default_factory=dict)
    delivered: dict[str, int] = Field(default_factory=dict)
    is_delivered: bool = False
    deliveries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    exit_code: int = 0
    table: str = ""

    @property
    def rows(self) -> int:
        """The rows that were delivered, or would be."""
        return sum((self.delivered if self.is_delivered else self.planned).values())

    def sentence(self) -> str:
        """What goes where, in a sentence without its full stop."""
        if self.problem:
            return f"corrections to {self.destination} were not delivered: {self.problem.rstrip('.')}"
        counts = self.delivered if self.is_delivered else self.planned
        if not self.rows:
            return f"no correction is due at {self.destination}"
        deleted = f", {counts['delete']:,} of them deletions" if counts.get("delete") else ""
        verb = "were delivered" if self.is_delivered else "would be delivered"
        verb = verb.replace("were delivered", "was delivered") if self.rows == 1 else verb
        return f"{plural(self.rows, 'correction')} ({self.value} values{deleted}) {verb} to {self.destination}"
