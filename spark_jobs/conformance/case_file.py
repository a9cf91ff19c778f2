"""What the cases of all engines share: the file, the configuration in it, and what it does not say as it should."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.errors import DefinitionError


@dataclass(frozen=True)
class CaseFile:
    """One case file."""

    path: Path
    document: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return self.document["config"]

    def unknown(self, what: str, value: Any, *known: str) -> DefinitionError:
        """The error for a value that is none of the known ones."""
        return DefinitionError(f"unknown {what} {value!r}", where=str(self.path), hint=f"use {', '.join(known)}")
