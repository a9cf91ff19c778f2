"""The engines that live jobs run on: what each of their definitions is.

An engine has one name on each floor. `PACKAGES` says in which package its modules lie: `definition.engines.<name>`
with the model of its definitions, `replay.<name>` with its rules, and `engines.<name>` with what its runs need.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from spark_jobs.definition.pipeline import Pipeline

PACKAGES = {
    "flink": "spark_jobs",
    "spark": "spark_jobs",
    "kafka_streams": "spark_jobs",
}
"""The one line that an engine needs beside its own files."""
DEFAULT = "flink"


def part_of(engine: str, room: str, module: str = "") -> ModuleType:
    """The module of an engine in a room, or one in its folder there, such as `rules` in `replay`."""
    return import_module(f"{PACKAGES[engine]}.{room}.{engine}{module and f'.{module}'}")


def model_of(engine: str) -> type[Pipeline]:
    """The model of an engine's definitions."""
    return part_of(engine, "definition.engines").MODEL


def has_field(engine: str, path: tuple[str | int, ...]) -> bool:
    """Whether an engine's definitions have a field at the path."""
    fields = _fields_of(engine)
    return tuple(step for step in path if isinstance(step, str)) in fields


@cache
def _fields_of(engine: str) -> frozenset[tuple[str, ...]]:
    return frozenset(_paths(model_of(engine)))


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        path = (*above, info.alias or name)
        yield path
        for section in sections_in(info.annotation):
            yield from _paths(section, path)


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field of this type can hold."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in get_args(annotation):
        yield from sections_in(argument)


def model_for(content: Any) -> type[Pipeline]:
    """The model of a definition's content; Flink's where it names no engine, or one that nobody knows."""
    engine = content.get("engine", DEFAULT) if isinstance(content, dict) else DEFAULT
    return model_of(engine if isinstance(engine, str) and engine in PACKAGES else DEFAULT)
