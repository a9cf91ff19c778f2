"""The documents of a run, of any version, from which its report is made; any of them may be missing or damaged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from spark_jobs.errors import DocumentError
from spark_jobs.report.counted import Facts
from spark_jobs.runs.life.documents import (
    AnyOutcome,
    Application,
    Approval,
    Changes,
    ChunkDocument,
    Document,
    Gate,
    Quarantine,
    Request,
)
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.corrected import DeliveredCorrections

_ONE: dict[str, type[Document]] = {
    "request": Request,
    "outcome": AnyOutcome,
    "plan": Plan,
    "changes": Changes,
    "gate": Gate,
    "approval": Approval,
    "verdicts": Verdicts,
    "corrections": DeliveredCorrections,
    "quarantine": Quarantine,
    "account": Account,
    "facts": Facts,
}
_MANY: dict[str, tuple[type[Document], str]] = {
    "applications": (Application, Application.PREFIX),
    "chunks": (ChunkDocument, "chunk-"),
}
"""The fields with several documents: what they are, and how the names of their files begin."""
PARTS = (*_ONE, *_MANY)
"""The fields that hold documents, the most telling ones first."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a run; None where the run has not written one.

    `damaged`: the files that are there and cannot be used; they count as not written, and the report names them.
    """

    run_id: str
    request: Request | None = None
    outcome: AnyOutcome | None = None
    plan: Plan | None = None
    changes: Changes | None = None
    gate: Gate | None = None
    approval: Approval | None = None
    verdicts: Verdicts | None = None
    corrections: DeliveredCorrections | None = None
    quarantine: Quarantine | None = None
    account: Account | None = None
    facts: Facts | None = None
    applications: tuple[Application, ...] = ()
    chunks: tuple[ChunkDocument, ...] = ()
    damaged: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: RunFolder) -> Documents:
        """Read all documents of a folder."""
        damaged: list[str] = []

        def read(kind: type[Document], file: str) -> Any:
            try:
                return kind.read_as(folder, file)
            except DocumentError:
                damaged.append(file)

        def each(kind: type[Document], beginning: str) -> tuple[Any, ...]:
            names = [n for n in folder.documents() if n.startswith(beginning) and n.endswith(".json")]
            return tuple(filter(None, (read(kind, name) for name in names)))

        found = {part: read(kind, kind.FILE) for part, kind in _ONE.items()}
        found |= {part: each(*kind) for part, kind in _MANY.items()}
        return cls(folder.run_id, **found, damaged=tuple(damaged))

    def with_only(self, *parts: str, damaged: Iterable[str] = ()) -> Documents:
        """Documents with the fields `parts` alone; the files of the fields `damaged` are named as damaged."""
        files = (f"{_MANY[part][1]}*.json" if part in _MANY else _ONE[part].FILE for part in damaged)
        others: dict[str, Any] = {part: () if part in _MANY else None for part in PARTS if part not in parts}
        return replace(self, **others, damaged=(*self.damaged, *files))
