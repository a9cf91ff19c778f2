"""The JSON Schema of a pipeline definition, so that editors complete and check it while it is written."""

from __future__ import annotations

from functools import reduce
from typing import Any

from spark_jobs.definition.engines import DEFAULT, PACKAGES, model_of
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.watermark import PARAMETERS

_OF_INPUTS = ["event_time", "watermark"]
_ENGINE = {"$ref": "#/$defs/Engine", "default": DEFAULT}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). It is a little wider than the checks of `load_pipeline`, never narrower.

    Any text may hold variables, which is why durations and instants also accept text with `${`. A field may have what
    it can have with one of the engines.
    """
    schemas = [model_of(engine).model_json_schema(by_alias=True, mode="validation") for engine in PACKAGES]
    schema = reduce(_either, schemas)
    definitions = schema["$defs"]
    definitions["Engine"] = {
        "description": "What the live job runs on.",
        "enum": list(PACKAGES),
        "title": "Engine",
        "type": "string",
    }
    schema["$defs"] = dict(sorted(definitions.items()))
    described = schema["properties"]["engine"]["description"]
    schema["properties"]["engine"] = {**_ENGINE, "description": described}
    definitions["Watermark"]["allOf"] = [
        {
            "if": {"properties": {"generator": {"const": kind.value}}, "required": ["generator"]},
            "then": {"required": list(parameters.needed)},
        }
        for kind, parameters in PARAMETERS.items()
        if parameters.needed
    ]
    kind = {"const": "union", "description": "The kind of history: union."}
    schema["if"] = {"properties": {"history": {"description": "Several histories.", "properties": {"kind": kind}}}}
    schema["else"] = {"required": _OF_INPUTS}
    _drop_null_defaults(schema)
    schema["description"] = "\n".join(line.strip() for line in (Pipeline.__doc__ or "").strip().splitlines())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Rewindow pipeline"}


def _either(one: dict[str, Any], other: dict[str, Any], name: str = "") -> dict[str, Any]:
    """What one of two engines' schemas allows, in the words of the first. `name`: of the field that has it."""
    if one == other:
        return one
    if "properties" in one and "properties" in other:
        both = {**other, **one, "properties": _each(one["properties"], other["properties"])}
        return both | ({"$defs": _each(one["$defs"], other["$defs"])} if "$defs" in one else {})
    choices = list({str(choice): choice for choice in (*_choices(one), *_choices(other))}.values())
    rest = {name: value for name, value in one.items() if name != "$ref"}
    if "discriminator" in one:
        mapping = one["discriminator"]["mapping"] | other["discriminator"]["mapping"]
        rest["discriminator"] = {**one["discriminator"], "mapping": dict(sorted(mapping.items()))}
    return {**rest, "oneOf": choices, "title": name.replace("_", " ").title()} if len(choices) > 1 else one


def _each(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **{name: _either(one[name], found, name) if name in one else found for name, found in other.items()}}


def _choices(node: dict[str, Any]) -> list[dict[str, Any]]:
    return node.get("oneOf") or ([{"$ref": node["$ref"]}] if "$ref" in node else [])


def _drop_null_defaults(node: Any) -> None:
    if isinstance(node, dict):
        if "default" in node and node["default"] is None:
            del node["default"]
        for value in node.values():
            _drop_null_defaults(value)
    elif isinstance(node, list):
        for value in node:
            _drop_null_defaults(value)
