# ruff: noqa: E501 (tables of values)
"""Definitions that follow their JSON Schema: each field is there at times, at times with a text of the right sort."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spark_jobs import definition

_TEXTS = (
    "1 h", "15 min", "0", "ts", "value", "a.b", "count(*)", "sum(distance)", "2013-01-01T00:00:00Z", "UTC", "Europe/Berlin",
    "ts BIGINT", "data/*.parquet", "lake.ref.shops", "k:9092", "orders", "1 %", "TOKEN", "a > 0", "", "key",
)  # fmt: skip
_DEEPEST = 6


@st.composite
def definitions(draw: DrawFn) -> Any:
    """A definition with some of the schema's fields."""
    return _drawn(draw, _schema(), 0)


@cache
def _schema() -> dict[str, Any]:
    return json.loads((Path(definition.__file__).parent / "pipeline.schema.json").read_text())


def _drawn(draw: DrawFn, schema: Mapping[str, Any], depth: int) -> Any:
    if "$ref" in schema:
        return _drawn(draw, _schema()["$defs"][schema["$ref"].rpartition("/")[2]], depth)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return _drawn(draw, draw(st.sampled_from(schema[several])), depth)
    if "const" in schema or "enum" in schema:
        return draw(st.sampled_from(schema.get("enum") or [schema.get("const")]))
    if schema.get("examples") and draw(st.booleans()):
        return draw(st.sampled_from(schema["examples"]))
    match schema.get("type"):
        case "object":
            return _object(draw, schema, depth)
        case "array":
            items = schema.get("items", {"type": "string"})
            return [_drawn(draw, items, depth + 1) for _ in range(draw(st.integers(0, 2)))]
        case "integer" | "number":
            return draw(st.integers(-1, 5))
        case "boolean":
            return draw(st.booleans())
        case "null":
            return None
    return draw(st.sampled_from(_TEXTS))


def _object(draw: DrawFn, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    fields, more = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields:
        inner = more if isinstance(more, dict) else {"type": "string"}
        return {name: _drawn(draw, inner, depth + 1) for name in draw(st.lists(st.sampled_from(_TEXTS), max_size=2))}
    required, found = set(schema.get("required", ())), {}
    for name, field in fields.items():
        if name in required or (depth < _DEEPEST and draw(st.integers(0, 3)) == 0):
            found[name] = _drawn(draw, field, depth + 1)
    return found
