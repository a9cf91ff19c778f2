"""The engines that live jobs run on: what each of their definitions is.

An engine has one name on each floor. `PACKAGES` says in which package its modules lie: `definition.engines.<name>`
with the model of its definitions, `replay.<name>` with its rules, and `engines.<name>` with what its runs need.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


def model_for(content: Any) -> type[Pipeline]:
    """The model of a definition's content; Flink's where it names no engine, or one that nobody knows."""
    engine = content.get("engine", DEFAULT) if isinstance(content, dict) else DEFAULT
    return model_of(engine if isinstance(engine, str) and engine in PACKAGES else DEFAULT)
