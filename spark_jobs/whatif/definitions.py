"""The definitions that are compared: the pipeline's own, and that with other values of some fields."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError

MOST = 5
"""So many definitions are compared at most."""
_APART = re.compile(r"\s*[,;]\s*(?=[A-Za-z_][\w.]*\s*=)")
_EXAMPLE = "Write --set watermark.bound=15min; several fields of one definition with a comma between them."
_READS = ("history", "value", "keys", "event_time", "filter", "deduplicate", "lookup", "columns", "functions")
_READS_OF_WATERMARK = ("partitions", "discovered", "marker", "stream")


OF_FORMS = frozenset(
    {
        *(f"watermark.{name}" for name in ("bound", "lag", "last", "wait", "idleness", "emission", "interval")),
        *(f"window.{name}" for name in ("size", "slide", "step", "gap", "offset", "grace")),
        *("allowed_lateness", "grace", "end_of_input"),
    }
)
"""What a form may set: durations and choices. Expressions, code and places are set in files alone."""


@dataclass(frozen=True)
class Variant:
    """A definition, and what people call it."""

    name: str
    pipeline: Pipeline


def variants_of(
    pipeline: Pipeline, sets: Sequence[str], against: Sequence[Path] = (), *, only: Collection[str] | None = None
) -> list[Variant]:
    """The pipeline's definition, then one for each of `sets` (`field=value, ...`) and of `against` (YAML files).

    `only`: the fields that may be set; None: all. Raises DefinitionError for a set that is none, a definition that is
    refused, and for none or more than `MOST`.
    """
    found = [Variant("as defined", pipeline)]
    found += [Variant(text.strip(), _with(pipeline, text, only)) for text in sets]
    found += [Variant(path.name, load_pipeline(path)) for path in against]
    if not 2 <= len(found) <= MOST:
        raise DefinitionError(f"{len(found) - 1} other definitions, and 1 to {MOST - 1} can be compared", "", _EXAMPLE)
    for one in found[1:]:
        if tuple(one.pipeline.keys) != tuple(pipeline.keys):
            hint = "Compare definitions with the same keys."
            raise DefinitionError("has other keys, so no window is the same", one.name, hint)
    return found


def _with(pipeline: Pipeline, text: str, only: Collection[str] | None) -> Pipeline:
    """The pipeline with the fields that `text` sets."""
    yaml = YAML()
    data = yaml.load(pipeline.text)
    for part in _APART.split(text.strip()):
        path, equals, value = part.partition("=")
        names = [name.strip() for name in path.split(".")]
        if not equals or not all(names):
            raise DefinitionError(f"{part[:60]!r} sets no field", "--set", _EXAMPLE)
        if only is not None and ".".join(names) not in only:
            hint = f"Choose among {', '.join(sorted(only))}; others on the command line."
            raise DefinitionError(f"`{path.strip()[:60]}` is not set by a form", "--set", hint)
        try:
            _set(data, names, YAML(typ="safe").load(value))
        except YAMLError as problem:
            raise DefinitionError(f"{value[:60]!r} is no value", "--set", _EXAMPLE) from problem
    written = io.StringIO()
    yaml.dump(data, written)
    try:
        return load_pipeline(pipeline.file, text=written.getvalue())
    except DefinitionError as problem:
        said = "; ".join(f"{p.field}: {p.what}{f'; {p.hint}' if p.hint else ''}" for p in problem.problems)
        raise DefinitionError(said or problem.what, f"--set {text[:80]}", problem.hint) from problem


def _set(data: Any, names: Sequence[str], value: Any) -> None:
    *sections, last = names
    for number, name in enumerate(sections):
        if data.get(name) is None:
            data[name] = {}
        data = data[name]
        if not isinstance(data, dict):
            raise DefinitionError(f"`{'.'.join(names[: number + 1])}` has no fields", "--set", _EXAMPLE)
    data[last] = value


def reads_alike(one: Pipeline, other: Pipeline) -> bool:
    """Whether both make the same records of the history, with the columns that each needs."""
    return _reading(one) == _reading(other)


def _reading(pipeline: Pipeline) -> dict[str, Any]:
    content = pipeline.model_dump(mode="json", warnings=False)
    watermark = content.get("watermark") or {}
    read = {name: content.get(name) for name in (*_READS, "aggregates", "end_of_input", "engine", "mode")}
    read["watermark"] = {name: watermark.get(name) for name in _READS_OF_WATERMARK}
    return read | {"gap": (content.get("window") or {}).get("gap_expression"), "engine": pipeline.engine_name}
