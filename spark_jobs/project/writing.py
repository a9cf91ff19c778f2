"""The files of a new project: definition, suites, DAG files, the editor's schema, `.env.example`."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from spark_jobs.definition import json_schema
from spark_jobs.definition.engines import model_of
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.formatting import one_line, visible
from spark_jobs.project.answers import Answers, SourceKind, within
from spark_jobs.project.yaml_text import quoted, scalar
from spark_jobs.settings import Settings

SHARED_SUITES = ("input.json", "windows.json", "reconciliation.json", "live.json")
"""The suites that apply to all pipelines of a project."""
DAG_FILES = ("rewindow_pipelines.py", "rewindow_refused.py")
"""The files that make DAGs of the definitions."""

_LINE_BREAK = re.compile(r"[\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SERVERS = re.compile(r"[\w.:,\[\]-]+")
_PACKAGE = files("spark_jobs.project")


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file of a project: its path from the project's folder, and its content."""

    path: str
    text: str


SCHEMA_LINE = "# yaml-language-server: $schema=../pipeline.schema.json"
"""The first line of a definition: editors find the schema by it."""


def project_files(answers: Answers, project: Path) -> list[ProjectFile]:
    """The files of a project with one pipeline; the definition is the first."""
    return files_around(answers.name, definition_text(answers, project), answers.null_keys)


def files_around(name: str, definition: str, null_keys: Collection[str] | None = None) -> list[ProjectFile]:
    """The definition of a pipeline, and what a project needs beside it.

    `null_keys`: the keys that records lack; None: no record was looked at.
    """
    return [
        ProjectFile(f"dags/pipelines/{name}.yaml", definition),
        ProjectFile(f"expectations/{name}.json", suite_text(name, null_keys)),
        *(ProjectFile(f"expectations/{shared}", _packaged(shared)) for shared in SHARED_SUITES),
        *(ProjectFile(f"dags/{file}", _packaged(file)) for file in DAG_FILES),
        ProjectFile("dags/pipeline.schema.json", json.dumps(json_schema(), indent=2) + "\n"),
        ProjectFile(".env.example", environment_text()),
        ProjectFile(".gitignore", "# Rewindow's tables, runs and logs\n.rewindow/\n.env\n"),
    ]


def write_files(project_files: list[ProjectFile], project: Path, *, force: bool) -> tuple[list[Path], list[Path]]:
    """Write the files; one that is there stays as it is.

    Args:
        force: Overwrite the definition, which is the first file.

    Returns:
        The paths of the files that were written, and of those that were there.

    Raises:
        DefinitionError: The definition is there and not `force`, or a file cannot be written.
    """
    written: list[Path] = []
    kept: list[Path] = []
    for number, file in enumerate(project_files):
        path = project / file.path
        if path.exists() and not (force and number == 0):
            if number == 0:
                hint = "--force overwrites it, --name chooses another name."
                raise DefinitionError("there is a definition of this name already", str(path), hint)
            kept.append(path)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8")
        except OSError as error:
            raise DefinitionError(f"cannot be written: {error.strerror}", str(path), "Check the folder.") from None
        written.append(path)
    return written, kept


_READ = "# Read every line that says CHECK: it is a guess. `rewindow check` accepts the file once the word is gone.\n"
"""The line that a definition without a guess has no use for."""


def definition_text(answers: Answers, project: Path) -> str:
    """The definition as YAML with comments."""
    sample, address = answers.sample, answers.address
    fidelity = answers.fidelity
    environment = Environment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, finalize=_on_one_line
    )
    filters = {"scalar": scalar, "mapping": _mapping, "comment": _comment, "lines": _Lines, "servers": _servers}
    environment.filters |= filters
    template = environment.from_string((_PACKAGE / "templates" / "pipeline.yaml.j2").read_text(encoding="utf-8"))
    path = within(sample.path, project) if address.kind is SourceKind.FILES else ""
    text = template.render(
        **{name: getattr(answers, name) for name in answers.__slots__},
        asked=model_of(answers.engine).asked,
        path=path,
        read_from=sample.source.replace(sample.path, path) if sample.path else sample.source,
        description=f"{answers.name}: windows over {path or address.place}.",
        read=len(sample.records) + sample.deletes,
        null_keys=answers.null_keys,
        is_complete_only=fidelity.level == "complete_only",
        fidelity=fidelity.level,
        fidelity_meaning=fidelity.meaning,
        fidelity_advice=fidelity.advice,
        disorder_line=disorder_line(answers),
    )
    return text if text.count("CHECK") > _READ.count("CHECK") else text.replace(_READ, "")


class _Lines(str):
    """Lines that keep their line breaks: comments, and what an engine writes below a section."""

    __slots__ = ()


def _comment(text: str, indent: int = 0) -> _Lines:
    """The text as lines of comments, whatever line breaks it has."""
    begin = " " * indent + "# "
    filled = textwrap.fill(
        one_line(text), width=118 + indent, initial_indent=begin, subsequent_indent=begin, break_on_hyphens=False
    )
    return _Lines(filled)


def _on_one_line(value: Any) -> Any:
    """What the template puts out: no text of a record, a table or an answer begins a line of its own."""
    return _LINE_BREAK.sub(" ", visible(value)) if isinstance(value, str) and not isinstance(value, _Lines) else value


def _servers(text: str) -> str:
    """Brokers, which a variable can replace."""
    written = f"${{REWINDOW_KAFKA:-{text}}}"
    return written if _SERVERS.fullmatch(text) else scalar(text)


def disorder_line(answers: Answers) -> str:
    """How far the records that were read were out of order, in one sentence."""
    found = answers.disorder
    order = "the order of the log" if found.in_log_order else "the order of the files, which need not be the log's"
    read = len(answers.sample.records)
    if not found.largest:
        return f"In {order}, none of the {read} records that were read lies behind an earlier one."
    return (
        f"In {order}, {found.share:.1%} of the {read} records that were read lie behind an earlier one, "
        f"at most by {format_duration(found.largest)}."
    )


def suite_text(name: str, null_keys: Collection[str] | None) -> str:
    """The pipeline's own suite: one expectation for each count that a person can make stricter.

    `null_keys`: the keys that records lack; None: no record was looked at, so each may be null as in the live job.
    """
    expectations = [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "run_dropped_share", "max_value": 0.05},
            "severity": "warning",
            "description": "At most one in twenty records came too late for its window",
            "meta": {"name": "few-dropped", "data": "reconciliation"},
        }
    ]
    notes = "Begun with the definition. After the first run, `rewindow expectations new --force` drafts more."
    meta: dict[str, Any] = {"data": "windows"}
    if null_keys is None:
        notes += " The live job gives windows of null keys too, so they are allowed: see `leave_out`."
    elif null_keys:
        notes += f" Records without {', '.join(null_keys)} were seen, so null keys are allowed: see `leave_out`."
    if null_keys is None or null_keys:
        meta["leave_out"] = ["windows/keys-not-null"]
    suite = {
        "name": name,
        "notes": notes,
        "meta": meta,
        "expectations": expectations,
    }
    return json.dumps(suite, indent=2) + "\n"


def environment_text() -> str:
    """Every variable of Rewindow, commented out, with its meaning and an example."""
    lines = ["# Copy this file to .env, remove the # of what you need, then: set -a; . ./.env; set +a", ""]
    for field in Settings.model_fields.values():
        lines += [f"# {field.description}", f"# {field.validation_alias}={(field.examples or [''])[0]}", ""]
    return "\n".join(lines)


def _mapping(values: Mapping[str, Any]) -> str:
    pairs = (
        f"{scalar(name)}: {quoted(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    )
    return "{" + ", ".join(pairs) + "}"


def _packaged(name: str) -> str:
    return (_PACKAGE / "files" / name).read_text(encoding="utf-8")
