"""The JSON Schema for editors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_jobs.definition import json_schema


def _properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        for name, value in node.get("properties", {}).items():
            yield f"{path}.{name}", value
        for name, value in node.items():
            if name not in ("allOf", "properties"):
                yield from _properties(value, f"{path}.{name}")


def test_the_schema_is_json() -> None:
    assert json.loads(json.dumps(json_schema()))["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_field_has_a_description() -> None:
    described = dict(_properties(json_schema()))
    assert len(described) > 70
    assert [path for path, value in described.items() if not value.get("description")] == []


def test_every_section_is_closed_to_unknown_fields() -> None:
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    assert [
        section["title"]
        for section in sections
        if "properties" in section and section.get("additionalProperties") is not False
    ] == []


def test_the_fields_are_named_as_in_yaml() -> None:
    definitions = json_schema()["$defs"]
    assert "class" in definitions["Watermark"]["properties"]
    assert "schema" in definitions["Value"]["properties"]
    schema = json_schema()
    assert {"name", "history", "window", "aggregates"} == set(schema["required"])
    assert schema["else"] == {"required": ["event_time", "watermark"]}, "a union has them in its inputs"


def test_a_generator_asks_for_its_parameters() -> None:
    rules = json_schema()["$defs"]["Watermark"]["allOf"]
    required = {rule["if"]["properties"]["generator"]["const"]: rule["then"]["required"] for rule in rules}
    assert required["bounded_out_of_orderness"] == ["bound"]
    assert required["average_of_last"] == ["last", "lag"]
    assert required["custom"] == ["class"]


def test_a_duration_is_text_with_a_unit_or_zero() -> None:
    size = json_schema()["$defs"]["TumblingWindow"]["properties"]["size"]
    assert {"type": "integer", "const": 0} in size["anyOf"]
    assert [option["type"] for option in size["anyOf"]] == ["string", "string", "integer"]
