"""Runs whose documents have hostile texts in each place that takes a text; the places are those of the models."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spark_jobs.report.documents import Documents
from spark_jobs.runs.life.documents import Application, ChunkDocument, Document
from spark_jobs.runs.life.store import RunFolder
from tests.report.documents import written
from tests.report.made import MARK, completed, documents, made

EVIL = (
    """x"'><img src=x onerror=alert(1)><svg/onload=alert(1)></title></style><script>alert(1)</script><!-- ${HOME} """
    "{{ 7 * 7 }} '; DROP TABLE x; -- \u202egnp.exe \x00\x1b]52;c;aGk=\x07 \ud800 \n- a: b\r\n"
)
HOSTILE = {"markup": EVIL, "address": "javascript:alert(1)", "megabyte": EVIL * 5_000}
OBEYED = {"\x00", "\x1b", "\x07", "\u202e", "\ud800"}
"""Characters that a terminal obeys, that change the direction of a text, or that no file can hold."""
FILES_OF_MANY = {ChunkDocument: "chunk-0001.json", Application: f"{Application.PREFIX}1.json"}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of texts and of empty places in a document."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places(part, (*path, name))
    elif isinstance(value, list):
        for number, part in enumerate(value[:3]):  # the others are like these
            yield from places(part, (*path, number))
    elif value is None or isinstance(value, str):
        yield path


def with_text(content: dict[str, Any], path: tuple[str | int, ...], text: str) -> dict[str, Any]:
    changed: Any = deepcopy(content)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = text
    return changed


def filled(kind: type[Document], content: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The document with a mark in each place where its model takes any text, and how many these are."""
    whole = {name: None for name in kind.model_fields if name not in content} | content

    def without_empty(document: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in document.items() if part is not None or name in content}

    taken = 0
    for path in places(whole):
        if path[0] in ("run_id", "pipeline", "format"):
            continue  # names that are checked before a folder is opened
        changed = with_text(whole, path, EVIL)
        try:
            kind.model_validate(without_empty(changed))
        except (ValidationError, ValueError):
            continue
        whole, taken = with_text(whole, path, MARK), taken + 1
    return without_empty(whole), taken


def replaced(value: Any, text: str) -> Any:
    """The document with the text in the place of each mark, also of names."""
    if isinstance(value, dict):
        return {text if name == MARK else name: replaced(part, text) for name, part in value.items()}
    if isinstance(value, list):
        return [replaced(part, text) for part in value]
    return text if value == MARK else value


def hostile_run(
    folder: Path, text: str, *, with_all: bool = True, run_id: str = "night-1", without: tuple[type[Document], ...] = ()
) -> tuple[RunFolder, int]:
    """A run whose documents have the text in each place, and how many these are.

    `with_all`: with all documents and all of their fields, as their models have them; else a published run as it is.
    `without`: kinds of documents that stay as they are.
    """
    run = written(folder, run_id, approval={"decision": "rejected", "by": "ann", "at": "now", "comment": "no"})
    count = 0
    for kind in documents():
        file = getattr(kind, "FILE", FILES_OF_MANY.get(kind))
        sample = run.read(file) if file else None
        if file is None or kind in without or (sample is None and not with_all):
            continue
        whole = completed(sample or {}, made(kind)) if with_all else sample
        assert isinstance(whole, dict)
        changed, taken = filled(kind, whole | {"run_id": run.run_id, "pipeline": "departures_hourly"})
        run.write(file, replaced(changed, text))
        count += taken
    assert not Documents.of(run).damaged, f"what is filled is shown: {Documents.of(run).damaged}"
    return run, count
