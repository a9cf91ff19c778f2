"""The JSON Schema of a pipeline definition, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from spark_jobs.definition.engines import DEFAULT, PACKAGES
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.watermark import PARAMETERS


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). It is a little wider than the checks of `load_pipeline`, never narrower.

    Any text may hold variables, which is why durations and instants also accept text with `${`.
    """
    schema = Pipeline.model_json_schema(by_alias=True, mode="validation")
    engines = {"description": "What the live job runs on.", "enum": list(PACKAGES), "title": "Engine", "type": "string"}
    schema["$defs"] = dict(sorted({**schema["$defs"], "Engine": engines}.items()))
    described = schema["properties"]["engine"]["description"]
    schema["properties"]["engine"] = {"$ref": "#/$defs/Engine", "default": DEFAULT, "description": described}
    watermark = schema["$defs"]["Watermark"]
    watermark["allOf"] = [
        {
            "if": {"properties": {"generator": {"const": kind.value}}, "required": ["generator"]},
            "then": {"required": list(parameters.needed)},
        }
        for kind, parameters in PARAMETERS.items()
        if parameters.needed
    ]
    of_inputs = [name for name in schema["required"] if name in ("event_time", "watermark")]
    schema["required"] = [name for name in schema["required"] if name not in of_inputs]
    kind = {"const": "union", "description": "The kind of history: union."}
    schema["if"] = {"properties": {"history": {"description": "Several histories.", "properties": {"kind": kind}}}}
    schema["else"] = {"required": of_inputs}
    _drop_null_defaults(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Rewindow pipeline"}


def _drop_null_defaults(node: Any) -> None:
    if isinstance(node, dict):
        if "default" in node and node["default"] is None:
            del node["default"]
        for value in node.values():
            _drop_null_defaults(value)
    elif isinstance(node, list):
        for value in node:
            _drop_null_defaults(value)
