"""What a plan pins of a lake table, and what can become of its rows between two plans. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class TableFormat(StrEnum):
    """The format of a lake table."""

    ICEBERG = "iceberg"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The state of a lake table that a run reads.

    `uuid`: the table's own identity; a table that is dropped and made again has another one. `snapshot`: an Iceberg
    table's snapshot, None where nothing has been written yet; a Delta table's version.
    """

    table: str
    uuid: str
    snapshot: int | None
    format: TableFormat = TableFormat.ICEBERG

    @property
    def description(self) -> str:
        """What is read, for people."""
        if self.format is TableFormat.DELTA:
            return f"Delta table {self.table}, version {self.snapshot}"
        at = "no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot}"
        return f"Iceberg table {self.table}, {at}"


class Change(Enum):
    """What became of a table's rows from one snapshot to a later one."""

    NONE = "has the same rows"
    APPENDED = "has more rows"
    FILLED = "has partitions that were written over, where no rows were"
    REMOVED = "has rows that were removed"
    REWRITTEN = "has rows that were changed"
    UNKNOWN = "lacks the snapshots between, which have expired"
    ROLLED_BACK = "was rolled back"
    ANOTHER = "was made anew"
