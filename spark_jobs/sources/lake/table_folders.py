"""Folders of lake tables. Not all data files in them count: some are of earlier versions, some hold deletes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spark_jobs.errors import SourceError

MARKS = ("_delta_log", ".hoodie", "metadata/*.metadata.json")
"""What lies in the folder of a Delta, a Hudi and an Iceberg table, as globs."""
_MARK = re.compile(r"^(?:(.*)/)?(?:(_delta_log)|(\.hoodie)|metadata/[^/]*\.metadata\.json)(?:/.*)?$")
_DATA_FOLDER = re.compile(r"[^/]+=[^/]*|data")


def folders_above(folder: str) -> list[str]:
    """The folder, and those above it up to the one that can be a table's: with partitions, or `data`, below it."""
    found = [folder]
    while _DATA_FOLDER.fullmatch(folder.rpartition("/")[2]) and "/" in folder:
        folder = folder.rpartition("/")[0]
        found.append(folder)
    return found


def refuse_table_folders(paths: Iterable[str]) -> None:
    """Raises SourceError where a path is a mark of a table: it names the table's folder and says how to read it."""
    for path in paths:
        found = _MARK.match(path)
        if found is None:
            continue
        folder = found[1] or "."
        kind = "Delta" if found[2] else "Hudi" if found[3] else "Iceberg"
        hint = {
            "Delta": f"Read the table: `history: {{kind: table, format: delta, table: {folder}}}`.",
            "Iceberg": "Read the table: `history: {kind: table, table: ...}` with its catalog and name.",
            "Hudi": "Write its records as an Iceberg or a Delta table, or as files in another folder.",
        }[kind]
        raise SourceError(f"the folder is that of a {kind} table, and not all of its files count", folder, hint)
