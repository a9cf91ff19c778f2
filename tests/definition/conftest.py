"""A small valid definition, and two ways to use a text: load it, or collect what it is refused for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError

DEFINITION = """\
name: p
history:
  kind: files
  path: data/*.parquet
  format: parquet
  position: {partition: partition, offset: offset, arrival: arrival}
keys: {carrier: key}
event_time: {expression: ts, unit: ms}
watermark:
  generator: bounded_out_of_orderness
  bound: 30 min
window:
  type: tumbling
  size: 1 h
aggregates:
  n: count(*)
"""

Load = Callable[..., Pipeline]
Refusals = Callable[..., list[str]]


@pytest.fixture
def definition() -> Callable[..., str]:
    """The small definition, with parts of its text replaced: `definition(("bound: 30 min", "bound: 1 h"))`."""

    def text(*replacements: tuple[str, str]) -> str:
        result = DEFINITION
        for old, new in replacements:
            assert old in result
            result = result.replace(old, new)
        return result

    return text


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a text as the file p.yaml, with an empty environment unless one is given."""

    def loaded(text: str, environment: Mapping[str, str] | None = None) -> Pipeline:
        file = tmp_path / "p.yaml"
        file.write_text(text, encoding="utf-8")
        return load_pipeline(file, environment or {})

    return loaded


@pytest.fixture
def refusals(load: Load, tmp_path: Path) -> Refusals:
    """The lines of the error that a text is refused with, the folder left out."""

    def lines(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
        with pytest.raises(DefinitionError) as refused:
            load(text, environment)
        return str(refused.value).replace(f"{tmp_path}/", "").splitlines()

    return lines
