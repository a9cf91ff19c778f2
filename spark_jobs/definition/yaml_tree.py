"""YAML text as plain data, with the line of every field and every problem that YAML itself has.

Timestamps stay text (YAML would drop their zone). A key that is given twice is a problem. Tags and merge keys are
refused. Variables are replaced in scalars only, so that no value can change the structure.

Size is limited (`MAX_DEPTH`, `MAX_VALUES`, `MAX_NUMBER`): Airflow's DAG processor reads every file again and again, and
a few kB of YAML can stand for gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from spark_jobs.definition.environment import is_place, substitute
from spark_jobs.definition.fields import Refusal
from spark_jobs.errors import DefinitionError, Problem

FieldPath = tuple[str | int, ...]
"""The way from the whole definition down to one field: names of fields, and positions in lists from 0."""

MAX_DEPTH = 40
"""Levels of nesting."""
MAX_VALUES = 10_000
"""Scalars, lists and mappings of a file, each alias counted as all that it stands for."""
MAX_NUMBER = 100
"""Characters of a number."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq")}


def dotted(path: FieldPath) -> str:
    """A path as messages show it: `watermark.subtasks[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class SourceMap:
    """The line of each field, and the text of the scalars that hold variables. Lines count from 1."""

    file: str = ""
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    unresolved: Mapping[FieldPath, str] = field(default_factory=dict)

    def line(self, path: FieldPath) -> int:
        """The line of the field, or of the nearest thing around it that is written down."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(tuple(path[:length]))) is not None:
                return line
        return 1

    def place(self, path: FieldPath) -> str:
        """`file:line`, or nothing if there is no file."""
        return f"{self.file}:{self.line(path)}" if self.file else ""

    def with_item(self, place: FieldPath, number: int) -> SourceMap:
        """The lines with those of one item of the list at `place` in the place of the list itself.

        What the item has under `definition` is at the top then.
        """
        item = (*place, number)

        def at(path: FieldPath) -> FieldPath | None:
            if path[: len(item)] != item:
                return None
            below = path[len(item) :]
            return below[1:] if len(below) > 1 and below[0] == "definition" else (*place, *below)

        def moved(known: Mapping[FieldPath, Any]) -> dict[FieldPath, Any]:
            kept = {path: value for path, value in known.items() if path[: len(place)] != place}
            return kept | {new: value for path, value in known.items() if (new := at(path)) is not None}

        return SourceMap(self.file, moved(self.lines), moved(self.unresolved))

    def with_input(self, item: FieldPath) -> SourceMap:
        """The lines with those of one input of a union at the top, in place of all that is beside it."""

        def moved(known: Mapping[FieldPath, Any]) -> dict[FieldPath, Any]:
            kept = {path: value for path, value in known.items() if path[:1] != item[:1]}
            return kept | {path[len(item) :]: value for path, value in known.items() if path[: len(item)] == item}

        return SourceMap(self.file, moved(self.lines), moved(self.unresolved))

    def problem(self, path: FieldPath, what: str, hint: str = "") -> Problem:
        """A problem of this file."""
        return Problem(self.file, self.line(path), dotted(path), what, hint)

    def as_written(self, path: FieldPath, value: Any) -> Any:
        """The value with each text as it was before its variables were replaced and its path completed."""
        if (text := self.unresolved.get(path)) is not None:
            return [text] if isinstance(value, list) else text
        if isinstance(value, list):
            return [self.as_written((*path, index), item) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self.as_written((*path, name), item) for name, item in value.items()}
        return value


@dataclass(frozen=True, slots=True)
class YamlTree:
    """A definition's data, the lines of its fields, and the problems found so far."""

    data: dict[str, Any]
    sources: SourceMap
    problems: tuple[Problem, ...]


def read_tree(text: str, file: str, environment: Mapping[str, str]) -> YamlTree:
    """Read one YAML mapping. `environment` holds the values of the variables.

    Problems of single values are returned, so that they can be listed together with those of the fields.

    Raises:
        DefinitionError: there is nothing to go on with: not YAML, empty, not a mapping, or beyond a limit of size.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = MAX_DEPTH
    try:
        root = yaml.compose(text)
    except MaxDepthExceededError as error:
        problem = Problem(
            file, _line_of(error), "", f"nested more than {MAX_DEPTH} deep", "write the definition with fewer levels"
        )
        raise DefinitionError.listing([problem]) from None
    except MarkedYAMLError as error:
        reason = error.problem or error.context or "unknown"
        if reason.startswith("but "):
            reason = f"{error.context}, {reason}"
        hint = "check the indentation, colons and quotes here and on the line above"
        raise DefinitionError.listing([Problem(file, _line_of(error), "", f"not valid YAML: {reason}", hint)]) from None
    except YAMLError as error:
        problem = Problem(file, 1, "", f"not valid YAML: {str(error).splitlines()[0]}", "save the file as UTF-8 text")
        raise DefinitionError.listing([problem]) from None
    if root is None or (isinstance(root, ScalarNode) and not root.value.strip()):
        problem = Problem(file, 1, "", "the file is empty", "begin with `name: my_pipeline`")
        raise DefinitionError.listing([problem])
    if not isinstance(root, MappingNode):
        hint = "write `field: value` lines, as `name: my_pipeline`"
        problem = Problem(file, root.start_mark.line + 1, "", "not a mapping", hint)
        raise DefinitionError.listing([problem])
    builder = _Builder(yaml, file, environment)
    data = builder.build(root, (), root.start_mark.line + 1)
    return YamlTree(data, builder.sources, tuple(builder.problems))


def _line_of(error: MarkedYAMLError) -> int:
    return error.problem_mark.line + 1 if error.problem_mark else 1


class _Builder:
    """Builds the data of one file from ruamel's nodes, and collects lines and problems on the way."""

    def __init__(self, yaml: YAML, file: str, environment: Mapping[str, str]) -> None:
        self._yaml = yaml
        self._environment = environment
        self._lines: dict[FieldPath, int] = {}
        self._unresolved: dict[FieldPath, str] = {}
        self._open: set[int] = set()
        self._values = 0
        self.sources = SourceMap(file, self._lines, self._unresolved)
        self.problems: list[Problem] = []

    def build(self, node: Node, path: FieldPath, line: int) -> Any:
        """The data of a node. Raises DefinitionError where the file stands for more than `MAX_VALUES` values."""
        self._lines[path] = line
        self._values += 1
        if self._values > MAX_VALUES:
            what = f"stands for more than {MAX_VALUES} values"
            hint = "leave out what no definition needs, aliases first"
            raise DefinitionError.listing([self.sources.problem(path, what, hint)])
        if node.tag not in _PLAIN_TAGS:
            self._report(path, f"tag `{node.tag.replace(_TAG, '!!')}` has no meaning here", "leave the tag out")
            return None
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._report(path, "the alias stands for something that holds itself", "write the value out")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [self.build(item, (*path, i), item.start_mark.line + 1) for i, item in enumerate(node.value)]
            assert isinstance(node, MappingNode)
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: FieldPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode) or not _is_text(key.value):
                self._lines[(*path, "?")] = line
                self._report((*path, "?"), "this is no name", "write `field: value`")
            elif key.tag == _TAG + "merge":
                self._lines[(*path, "<<")] = line
                self._report((*path, "<<"), "merge keys are not supported", "write the fields out")
            elif key.value in data:
                what = f"is given twice, first on line {self._lines[(*path, key.value)]}"
                field_name = dotted((*path, key.value))
                self.problems.append(Problem(self.sources.file, line, field_name, what, "keep one of the two"))
            else:
                data[key.value] = self.build(value, (*path, key.value), line)
        return data

    def _scalar(self, node: ScalarNode, path: FieldPath) -> Any:
        if not _is_text(node.value):
            self._report(
                path, "holds half of a character", "write the character itself, not `\\u` escapes of its halves"
            )
            return None
        if node.tag == _TAG + "timestamp":
            return node.value
        if "${" not in node.value:
            return self._constructed(node, path)
        try:
            resolved = substitute(node.value, self._environment, counts=is_place(path))
        except Refusal as refusal:
            self._report(path, refusal.what, refusal.hint)
            return node.value
        if resolved != node.value:
            self._unresolved[path] = node.value
        if node.style is not None:
            return resolved
        tag = str(self._yaml.resolver.resolve(ScalarNode, resolved, (True, False)))
        if tag not in {_TAG + name for name in ("int", "float", "bool")}:
            return resolved
        return self._constructed(ScalarNode(tag, resolved), path)

    def _constructed(self, node: ScalarNode, path: FieldPath) -> Any:
        """The value of a scalar. Python itself refuses to read, or later to write, numbers of some thousand digits."""
        if len(node.value) > MAX_NUMBER and node.tag in (_TAG + "int", _TAG + "float"):
            what = f"a number of {len(node.value)} characters"
            self._report(path, what, f"write a number of at most {MAX_NUMBER} characters, or text in quotes")
            return None
        return self._yaml.constructor.construct_object(node, deep=True)

    def _report(self, path: FieldPath, what: str, hint: str) -> None:
        self.problems.append(self.sources.problem(path, what, hint))


def _is_text(text: str) -> bool:
    """Whether the text has no lone surrogates, which escapes like `\\ud800` bring in."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
