"""Pipelines from YAML files. The problems of a file are listed together, each with its line and what to write."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spark_jobs.definition.engines import model_for
from spark_jobs.definition.fields import YAML_CONTEXT, nearest
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.problems import problems_of
from spark_jobs.definition.project import project_folder
from spark_jobs.definition.yaml_tree import FieldPath, SourceMap, YamlTree, read_tree
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.settings import Variable

MAX_PROBLEMS = 20
"""Problems of one file that are listed; the others are counted."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILES_AT = (("history",), ("live", "source"), ("live", "late_output", "source"), ("corrections", "to"))
"""The sections of a definition that can name files."""
_VALUES_AT = (
    ("value",),
    *((*source, part) for source in _FILES_AT[1:] for part in ("key", "value")),
)
"""The sections that say how values are decoded."""


def load_pipeline(
    path: str | os.PathLike[str], environment: Mapping[str, str] | None = None, text: str | None = None
) -> Pipeline:
    """The pipeline that a YAML file defines.

    Args:
        path: the YAML file. Relative paths in it start at the project's folder: for a file in `dags/pipelines/` the
            folder that holds `dags/`, else the file's own folder.
        environment: the values of variables; by default the environment of the process.
        text: the file's content, where it was read before.

    Raises:
        DefinitionError: it lists the problems as `file:line: field: what is wrong; what to write instead`, at most
            `MAX_PROBLEMS` of them.
    """
    path = Path(path)
    variables = os.environ if environment is None else environment
    tree = read_tree(_read_text(path) if text is None else text, str(path), variables)
    written = _complete_paths(tree, project_folder(path))
    sources = SourceMap(tree.sources.file, tree.sources.lines, {**tree.sources.unresolved, **written})
    left = _left_open(tree.data, sources)
    problems = [*tree.problems, *left, *_read_schema_files(tree, project_folder(path), variables)]
    pipeline, model = None, model_for(tree.data)
    more = 0
    try:
        pipeline = model.model_validate(tree.data, context=YAML_CONTEXT)
    except ValidationError as error:
        fields = {problem.field for problem in problems}
        new = (problem for problem in problems_of(error, model, sources) if problem.field not in fields)
        # To find the words for a problem costs more than to find the problem.
        found = list(itertools.islice(new, MAX_PROBLEMS))
        if len(found) == MAX_PROBLEMS:
            more = error.error_count() - MAX_PROBLEMS
        problems += found
    if problems or pipeline is None:
        raise DefinitionError.listing(_first(problems, more))
    return pipeline.loaded_from(sources, text if text is not None else _read_text(path))


CHECK = "CHECK"
"""Stands in a draft where a person has to write a value."""


def _left_open(value: Any, sources: SourceMap, path: FieldPath = ()) -> Iterator[Problem]:
    """The values of a draft that nobody has filled in yet."""
    if value == CHECK:
        field = ".".join(map(str, path))
        yield Problem(sources.file, sources.line(path), field, f"still says `{CHECK}`", "fill in the live job's own")
    elif isinstance(value, (Mapping, list, tuple)):
        for name, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _left_open(part, sources, (*path, name))


def _first(problems: Sequence[Problem], more: int) -> list[Problem]:
    """The first `MAX_PROBLEMS` problems by line, and how many there are beyond them; `more` were not even listed."""
    ordered = sorted(problems, key=lambda problem: problem.line)
    first, rest = ordered[:MAX_PROBLEMS], ordered[MAX_PROBLEMS:]
    if rest or more:
        last = max(first[-1].line, *(problem.line for problem in ordered))
        first.append(Problem(first[-1].file, last, "", f"{len(rest) + more} more problems", "correct these first"))
    return first


def table_of(pipeline: Pipeline) -> str:
    """The name of a pipeline's table, as catalogs that ignore case know it."""
    return f"{pipeline.output.namespace}.{pipeline.output.table}".lower()


def refuse_shared(pipeline: Pipeline) -> None:
    """Raise DefinitionError where another pipeline of the file's folder writes to the same table.

    Files that cannot be read say so when they are checked themselves.
    """
    own = Path(pipeline.file)
    for file in sorted(file for file in own.parent.iterdir() if file.suffix in (".yaml", ".yml")):
        with suppress(DefinitionError):
            other = load_pipeline(file)
            if other.name == pipeline.name or file.resolve() == own.resolve():
                continue
            if table_of(other) == table_of(pipeline):
                break
    else:
        return
    field = ("output", "table")
    what = f"`{table_of(pipeline)}` is taken by {other.source_of(field)}"
    raise DefinitionError.listing([pipeline.problem(field, what, "choose another name")])


_REMARK = re.compile(rf"(?:^|\s)# ?({CHECK}\b.*)")


def unchecked(text: str) -> dict[int, str]:
    """The comments of a draft that still say `CHECK`, by line: nobody has read them yet."""
    found = ((line, _REMARK.search(written)) for line, written in enumerate(text.splitlines(), 1))
    return {line: match[1].strip() for line, match in found if match}


def refuse_unchecked(pipeline: Pipeline) -> None:
    """Raise DefinitionError where a comment of the file still says `CHECK`."""
    hint = f"once the line is right, take `{CHECK}` out of the comment"
    found = unchecked(pipeline.text).items()
    problems = [Problem(pipeline.file, line, "", f"still says `{said}`", hint) for line, said in found]
    if problems:
        raise DefinitionError.listing(_first(problems, 0))


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
    """Make the relative paths of files absolute. Returns the texts as written, by field."""
    written: dict[tuple[str | int, ...], str] = {}
    for place in _written_at(tree, _FILES_AT):
        files = _at(tree, place)
        if isinstance(files, dict) and files.get("kind") == "files":
            written |= _complete_path(files, place, tree, root)
    return written


def _complete_path(
    files: dict[str, Any], place: FieldPath, tree: YamlTree, root: Path
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


def _read_schema_files(tree: YamlTree, root: Path, environment: Mapping[str, str]) -> list[Problem]:
    """Replace each `schema_file` by `schema`, its text, so that the text is part of the definition.

    Only files below the project's folder, or a folder that `REWINDOW_SCHEMA_FOLDERS` lists, are read: people are shown
    the text.
    """
    more = environment.get(Variable.SCHEMA_FOLDERS, "").split(os.pathsep)
    folders = [root.resolve(), *(Path(folder).expanduser().resolve() for folder in more if folder.strip())]
    problems: list[Problem] = []
    for place in _written_at(tree, _VALUES_AT):
        value = _at(tree, place)
        name = value.get("schema_file") if isinstance(value, dict) else None
        if not isinstance(name, str) or not name.strip():
            continue
        field = (*place, "schema_file")
        if "schema" in value:
            problems.append(tree.sources.problem(field, "there is a `schema` too", "keep one of the two"))
            continue
        try:
            if not any((root / name).resolve().is_relative_to(folder) for folder in folders):
                what = f"`{root / name}` is outside the project's folder {root}"
                hint = f"move it below that folder, or list its folder in `{Variable.SCHEMA_FOLDERS}`"
                problems.append(tree.sources.problem(field, what, hint))
                continue
            value["schema"] = (root / name).read_text(encoding="utf-8")
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links that lead to themselves
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            problems.append(
                tree.sources.problem(field, f"`{root / name}` cannot be read: {reason}", "name a readable file")
            )
    return problems


def _written_at(tree: YamlTree, places: Sequence[tuple[str, ...]]) -> Iterator[FieldPath]:
    """The places: those in `live` for each deployment where it is a list, those of a history for each of a union."""
    live, history = tree.data.get("live"), tree.data.get("history")
    inputs = history.get("of") if isinstance(history, dict) else None
    for place in places:
        if place[0] in ("history", "value") and isinstance(inputs, list):
            yield from (("history", "of", number, *place) for number in range(len(inputs)))
        if place[0] == "live" and isinstance(live, list):
            yield from (("live", number, *place[1:]) for number in range(len(live)))
        else:
            yield place


def _at(tree: YamlTree, place: FieldPath) -> Any:
    """The file's value at a place; None where there is none."""
    found: Any = tree.data
    for step in place:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found
