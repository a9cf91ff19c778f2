"""Suites of a Great Expectations project as a pipeline's own suite, and a list of what has no counterpart.

Read are the suites of GX 1.x, and of 0.18 with its older names of fields. Each expectation is checked as the gate
checks it, so that the suite that is written passes `rewindow expectations check`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.quality import gx
from spark_jobs.quality.resolve import SuiteScope, fit
from spark_jobs.quality.suites import Data, Expectation, Severity, Suite, Suites

_DECIDED_BY_THE_GATE = ("result_format", "catch_exceptions", "include_config", "batch_id")
_SUITE_FIELDS = {"name", "expectation_suite_name", "expectations", "id", "ge_cloud_id", "meta", "notes"}
_COLUMNS = ("column", "column_A", "column_B")
_OTHER_FILES = {
    "checkpoints": "what is done with a result: see `severity`, and Notifications in docs/airflow.md",
    "validation_definitions": "which data a suite is about: here it is the windows that a run has staged",
    "plugins": "code of your own: expectations of this kind have no counterpart",
}
_ROW_BY_ROW = ("ColumnMapExpectation", "ColumnPairMapExpectation", "MulticolumnMapExpectation")


@dataclass(frozen=True, slots=True)
class Note:
    """A part of the project that is not, or not exactly, in the new suite: its place, what it is and why."""

    place: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ImportedSuite:
    """The expectations that a pipeline can have, as they are written, and what was left out or changes its meaning."""

    expectations: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...]


def suite_files(source: Path) -> list[Path]:
    """The suites under a file, a folder of suites or a project's folder. Raises DefinitionError if there is none."""
    if source.is_file():
        return [source]
    inside = (source / name for name in ("gx/expectations", "great_expectations/expectations", "expectations", "."))
    for folder in inside:
        found = sorted(file for file in folder.rglob("*.json") if not file.name.startswith("."))
        if found:
            return found
    hint = "Name a suite's JSON file, or the folder of a Great Expectations project."
    raise DefinitionError("there is no expectation suite", str(source), hint)


def import_suites(files: list[Path], pipeline: Pipeline, columns: Mapping[str, str]) -> ImportedSuite:
    """The suites' expectations for the windows of a pipeline.

    Args:
        columns: By name of a column in the suites: its name in the windows.

    Raises:
        DefinitionError: A file is not a suite.
        EnvironmentSetupError: Great Expectations is not installed.
    """
    expectations: list[dict[str, Any]] = []
    notes: list[Note] = []
    for file in files:
        written = _read(file)
        others = sorted(name for name in written.keys() - _SUITE_FIELDS if written[name])
        notes += [Note(file.name, name, "has no counterpart") for name in others]
        notes += _meta_left_out(file.name, written.get("meta"), ("great_expectations_version",))
        for number, item in enumerate(written["expectations"]):
            place = f"{file.name}: expectation {number + 1}"
            kind = item.get("type") or item.get("expectation_type") or ""
            one, said = _expectation(item, kind, place, columns)
            problem = _problem(one, pipeline)
            if problem is not None:
                notes.append(Note(place, _named(one), problem))
                continue
            notes += said
            if not _is_row_by_row(kind):
                why = "CHECK: it is computed over the windows that one run has staged, not over the whole table"
                notes.append(Note(place, _named(one), why))
            expectations.append(one)
    return ImportedSuite(tuple(expectations), (*notes, *_other_files(files)))


def merged(existing: Mapping[str, Any], imported: ImportedSuite) -> dict[str, Any]:
    """A pipeline's suite with the imported expectations after its own; one that is there already is not added."""
    own = list(existing.get("expectations", []))
    return {**existing, "expectations": own + [one for one in imported.expectations if one not in own]}


def new_suite(pipeline: Pipeline) -> dict[str, Any]:
    """A suite for a pipeline without expectations."""
    return {"name": pipeline.name, "meta": {"data": Data.WINDOWS.value}, "expectations": []}


def _read(file: Path) -> dict[str, Any]:
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise DefinitionError(f"cannot be read: {problem}", str(file), "Name a suite's JSON file.") from None
    found = written.get("expectations") if isinstance(written, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise DefinitionError("not an expectation suite", str(file), "Name a suite of Great Expectations.")
    return written


def _expectation(
    item: Mapping[str, Any], kind: str, place: str, columns: Mapping[str, str]
) -> tuple[dict[str, Any], list[Note]]:
    """An expectation as it is written here, and what of it is left out."""
    kwargs = dict(item.get("kwargs") or {})
    said = [Note(place, name, "is decided by the gate") for name in _DECIDED_BY_THE_GATE if kwargs.pop(name, None)]
    for name in _COLUMNS:
        if isinstance(kwargs.get(name), str):
            kwargs[name] = columns.get(kwargs[name], kwargs[name])
    if isinstance(kwargs.get("column_list"), list):
        kwargs["column_list"] = [columns.get(name, name) for name in kwargs["column_list"]]
    conditions = [name for name in ("row_condition", "unexpected_rows_query") if kwargs.get(name)]
    why = "CHECK: its columns must be those of the windows"
    said += [Note(place, f"{name}: {kwargs[name]}", why) for name in conditions]
    one: dict[str, Any] = {"type": kind, "kwargs": kwargs, "severity": item.get("severity") or "critical"}
    if item.get("description"):
        one["description"] = item["description"]
    noted = item.get("notes") or (item.get("meta") or {}).get("notes")
    if noted:
        one["notes"] = noted
    one["meta"] = {"data": Data.WINDOWS.value}
    return one, [*said, *_meta_left_out(place, item.get("meta"), ("notes",))]


def _meta_left_out(place: str, meta: Any, known: tuple[str, ...]) -> Iterator[Note]:
    names = sorted(meta.keys() - set(known)) if isinstance(meta, dict) else []
    yield from (Note(place, f"meta.{name}", "has no counterpart") for name in names)


def _problem(one: Mapping[str, Any], pipeline: Pipeline) -> str | None:
    """Why the gate would refuse it; None where it would not."""
    if one["severity"] not in list(Severity):
        return f"severity {one['severity']!r} is none of {', '.join(Severity)}"
    written = Expectation(
        data=Data.WINDOWS,
        type=one["type"],
        kwargs=one["kwargs"],
        severity=Severity(one["severity"]),
        description="",
        name="",
        when=(),
        place=(),
    )
    try:
        fitted, _ = fit(Suites("", (Suite(pipeline.name, "", (written,)),)), SuiteScope(pipeline))
        gx.built(fitted)
    except DefinitionError as error:
        return "; ".join(f"{problem.what}: {problem.hint}" for problem in error.problems)
    return None


def _named(one: Mapping[str, Any]) -> str:
    about = one["kwargs"].get("column") or one["kwargs"].get("column_list") or one["kwargs"].get("column_A")
    return f"{one['type']} of {about}" if about else str(one["type"])


def _is_row_by_row(kind: str) -> bool:
    return "unique" not in kind and any(name in _ROW_BY_ROW for name in gx.bases_of(kind))


def _other_files(files: list[Path]) -> Iterator[Note]:
    """The other parts of the project that the suites are in."""
    folders = [parent for parent in files[0].resolve().parents if parent.name == "expectations"]
    for name, why in _OTHER_FILES.items() if folders else ():
        for file in sorted((folders[0].parent / name).rglob("*")):
            if file.suffix in (".json", ".yml", ".yaml", ".py"):
                yield Note(f"{name}/{file.name}", "not imported", why)
