"""Pipelines from YAML files. Whatever is wrong with a file is told at once, each problem with its line and its mend."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spark_jobs.definition.fields import YAML_CONTEXT, nearest
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.problems import problems_of
from spark_jobs.definition.yaml_tree import SourceMap, YamlTree, read_tree
from spark_jobs.errors import DefinitionError, Problem

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILES_AT = (("history",), ("live", "source"), ("live", "late_output", "source"))
"""Where a definition can name files."""
_VALUES_AT = (
    ("value",),
    *((*source, part) for source in _FILES_AT[1:] for part in ("key", "value")),
)
"""Where a definition can say how values are decoded."""


def load_pipeline(
    path: str | os.PathLike[str], environment: Mapping[str, str] | None = None, text: str | None = None
) -> Pipeline:
    """The pipeline that a YAML file defines, or the `text` that was read from it before.

    `environment` gives the variables; left out, the process's own. A relative path of files starts at the project's
    folder: the one that holds `dags/` for a file in `dags/pipelines/`, else the file's own.

    Raises DefinitionError, listing every problem as `file:line: field: what is wrong; what to write instead`.
    """
    path = Path(path)
    variables = os.environ if environment is None else environment
    tree = read_tree(_read_text(path) if text is None else text, str(path), variables)
    written = _complete_paths(tree, project_folder(path))
    sources = SourceMap(tree.sources.file, tree.sources.lines, {**tree.sources.unresolved, **written})
    problems = [*tree.problems, *_read_schema_files(tree, project_folder(path))]
    pipeline = None
    try:
        pipeline = Pipeline.model_validate(tree.data, context=YAML_CONTEXT)
    except ValidationError as error:
        told = {problem.field for problem in problems}
        problems += [problem for problem in problems_of(error, Pipeline, sources) if problem.field not in told]
    if problems or pipeline is None:
        raise DefinitionError.listing(problems)
    pipeline._sources = sources
    pipeline._text = text if text is not None else _read_text(path)
    return pipeline


def load_pipelines(folder: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> dict[str, Pipeline]:
    """The pipelines of all `*.yaml` and `*.yml` files in a folder, by name, in the order of their names.

    Raises DefinitionError with the problems of all files together, two files with one name or one table among them.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DefinitionError("there is no such folder", str(folder), "Name the folder of the pipelines' YAML files")
    problems: list[Problem] = []
    pipelines: list[Pipeline] = []
    for file in sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml")):
        try:
            pipelines.append(load_pipeline(file, environment))
        except DefinitionError as error:
            if not error.problems:
                raise
            problems += error.problems
    problems += _shared(pipelines, ("name",), lambda pipeline: pipeline.name)
    problems += _shared(pipelines, ("output", "table"), lambda p: f"{p.output.namespace}.{p.output.table}")
    if problems:
        raise DefinitionError.listing(problems)
    return {pipeline.name: pipeline for pipeline in sorted(pipelines, key=lambda pipeline: pipeline.name)}


def project_folder(path: str | os.PathLike[str]) -> Path:
    """The folder at which a definition's relative paths start."""
    folder = Path(path).absolute().parent
    if folder.name == "pipelines" and folder.parent.name == "dags":
        return folder.parent.parent
    return folder


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = path.parent
        near = nearest(path.name, [file.name for file in folder.glob("*.y*ml")]) if folder.is_dir() else None
        hint = f"Did you mean `{folder / near}`?" if near else "Name the pipeline's YAML file"
        raise DefinitionError("there is no such file", str(path), hint) from None
    except UnicodeDecodeError:
        raise DefinitionError.listing([Problem(str(path), 1, "", "not UTF-8 text", "save the file as UTF-8")]) from None
    except OSError as error:
        raise DefinitionError(f"cannot be read: {error.strerror}", str(path), "Name a readable YAML file") from None


def _complete_paths(tree: YamlTree, root: Path) -> dict[tuple[str | int, ...], str]:
    """Makes the relative paths of files absolute; gives back their texts as written."""
    written: dict[tuple[str | int, ...], str] = {}
    for place in _FILES_AT:
        files = _at(tree, place)
        if isinstance(files, dict) and files.get("kind") == "files":
            written |= _complete_path(files, place, tree, root)
    return written


def _complete_path(
    files: dict[str, Any], place: tuple[str, ...], tree: YamlTree, root: Path
) -> dict[tuple[str | int, ...], str]:
    written: dict[tuple[str | int, ...], str] = {}
    holder: Any = files
    places: list[tuple[str | int, tuple[str | int, ...]]] = [("path", (*place, "path"))]
    if isinstance(files.get("path"), list):
        holder = files["path"]
        places = [(index, (*place, "path", index)) for index in range(len(holder))]
    for key, path in places:
        text = holder.get(key) if isinstance(holder, dict) else holder[key]
        if isinstance(text, str) and text.strip() and not _SCHEME.match(text) and not Path(text).is_absolute():
            written[path] = tree.sources.unresolved.get(path, text)
            holder[key] = str(root / text)
    return written


def _read_schema_files(tree: YamlTree, root: Path) -> list[Problem]:
    """Puts the text of a `schema_file` where `schema` would be, so that it is part of the definition."""
    problems = []
    for place in _VALUES_AT:
        value = _at(tree, place)
        name = value.get("schema_file") if isinstance(value, dict) else None
        if not isinstance(name, str) or not name.strip():
            continue
        field = (*place, "schema_file")
        if "schema" in value:
            problems.append(tree.sources.problem(field, "there is a `schema` too", "keep one of the two"))
            continue
        try:
            value["schema"] = (root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            problems.append(
                tree.sources.problem(field, f"`{root / name}` cannot be read: {reason}", "name a readable file")
            )
    return problems


def _at(tree: YamlTree, place: tuple[str, ...]) -> Any:
    """What the file has there; None where it has nothing."""
    found: Any = tree.data
    for step in place:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _shared(pipelines: list[Pipeline], field: tuple[str, ...], value_of: Any) -> list[Problem]:
    first: dict[str, Pipeline] = {}
    problems = []
    for pipeline in pipelines:
        value = value_of(pipeline)
        other = first.setdefault(value, pipeline)
        if other is not pipeline:
            file, _, line = pipeline.source_of(field).rpartition(":")
            what = f"`{value}` is taken by {other.source_of(field)}"
            problems.append(Problem(file, int(line), ".".join(field), what, "choose another name"))
    return problems
