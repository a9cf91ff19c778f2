"""JSON values for the models of a run's documents, with each of their fields, made from the models themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from spark_jobs import LAYOUT
from spark_jobs.report.documents import PARTS
from spark_jobs.runs.life.documents import Document
from spark_jobs.runs.planning.looks import Look

assert PARTS and Look  # with these all kinds of documents are known
MARK = "a text"
"""What stands in each place of a text."""
_PLAIN: dict[Any, Any] = {str: MARK, int: 1, float: 1.0, bool: False, Any: MARK, object: MARK, bytes: "YQ=="}


def documents(kind: type[Document] = Document) -> Iterator[type[Document]]:
    """The kinds of documents of a run."""
    for one in kind.__subclasses__():
        yield one
        yield from documents(one)


def parts_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The fields of a model or a dataclass, by the names in the file, and their types."""
    if issubclass(kind, BaseModel):
        return ((field.alias or name, field.annotation) for name, field in kind.model_fields.items())
    hints = get_type_hints(kind)
    return ((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def is_whole(kind: Any) -> bool:
    """Whether it is a model or a dataclass."""
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))


def types_in(kind: Any, seen: set[type] | None = None) -> Iterator[type]:
    """All models and dataclasses in a type, itself among them."""
    seen = set() if seen is None else seen
    if is_whole(kind) and kind not in seen:
        seen.add(kind)
        yield kind
        for _, part in parts_of(kind):
            yield from types_in(part, seen)
    for argument in get_args(kind):
        yield from types_in(argument, seen)


def made(kind: Any, more: Mapping[str, Any] | None = None, within: tuple[Any, ...] = ()) -> Any:
    """A value of a type, as JSON has it: each field is there, each list and mapping has one entry.

    `more`: fields that each model and dataclass gets beside its own. `within`: the types around it; a list of one of
    them is empty.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if is_whole(kind):
        own = {name: made(part, more, (*within, kind)) for name, part in parts_of(kind)}
        return own | {"document_version": LAYOUT} | (more or {}) if "document_version" in own else own | (more or {})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    return _made_of_several(kind, more, within)


def _made_of_several(kind: Any, more: Mapping[str, Any] | None, within: tuple[Any, ...]) -> Any:
    arguments = [argument for argument in get_args(kind) if argument is not NoneType]
    origin = get_origin(kind)
    if origin is Literal:
        return arguments[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {str(made(arguments[0])): made(arguments[1], more, within)}
    if isinstance(origin, type) and issubclass(origin, (tuple, list, set, frozenset)):
        members = [argument for argument in arguments if argument is not Ellipsis]
        return [] if set(members) & set(within) else [made(member, more, within) for member in members]
    return made(arguments[0], more, within) if arguments else None


def completed(sample: Any, whole: Any) -> Any:
    """A sample with what it lacks of a made value."""
    if isinstance(sample, dict) and isinstance(whole, dict):
        return whole | {name: completed(part, whole.get(name)) for name, part in sample.items()}
    if isinstance(sample, list) and isinstance(whole, list) and whole:
        return [completed(part, whole[0]) for part in sample]
    return whole if sample is None else sample
