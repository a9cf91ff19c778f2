"""What the cases of all engines share: the file, the configuration in it, and what it does not say as it should."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from spark_jobs.errors import DefinitionError


@dataclass(frozen=True)
class CaseFile:
    """One case file."""

    path: Path
    document: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The case of a file that has the format of this class. Raises DefinitionError as `json_of` does."""
        return cls(path, json_of(path))

    @property
    def config(self) -> dict[str, Any]:
        return self.document["config"]

    def unknown(self, what: str, value: Any, *known: str) -> DefinitionError:
        """The error for a value that is none of the known ones."""
        return DefinitionError(f"unknown {what} {value!r}", where=str(self.path), hint=f"use {', '.join(known)}")


def json_of(path: Path) -> Any:
    """The content of a case file, packed or not. Raises DefinitionError where it is no JSON."""
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, ValueError) as problem:
        raise DefinitionError(
            f"not a readable case file: {problem}", where=str(path), hint="give JSON files of a known format"
        ) from problem
