"""Write what the definitions' models generate: `python -m tests.tools.fields_page`, in the root.

These are `docs/fields.md`, the reference of every field, and the JSON Schema in the package, for editors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_jobs.definition import json_schema
from spark_jobs.eventtime import durations

PAGE = Path("docs/fields.md")
SCHEMA = Path("spark_jobs/definition/pipeline.schema.json")

_INTRODUCTION = """\
# Fields of a definition

Each section of a definition has a table here. `required` fields have no default. A duration is written as people say
it: `30 min`, `1 h 30 min`, `200 ms`, `2 days`, `PT30M`; a time with its zone: `2013-01-01T10:00:00Z`. An expression is
Spark SQL. `${NAME}` and `${NAME:-default}` come from the environment in
fields that say where things are: `path`, `servers`, `topic`, `table`, `namespace`, `metastore`, `options`, `secrets`,
`connection`, `schema_file`, `url`, `subject`, `checkpoint`. Elsewhere they are refused; `$${` stands for a plain `${`.

An editor with a YAML language server completes and checks the fields. It needs one line, which `rewindow init` writes.
The schema lies in the package as `spark_jobs/definition/pipeline.schema.json`; `rewindow schema` prints it.

`python -m tests.tools.fields_page` generates this page from `spark_jobs/definition/`; do not edit it by hand.
"""

Schema = Mapping[str, Any]


def fields_page() -> str:
    """The page: one section for each model of a definition, in the order in which they are reached from the top."""
    schema = json_schema()
    definitions: dict[str, Schema] = schema["$defs"]
    parts = [_INTRODUCTION, _section("A definition", schema, definitions)]
    for name, path in _reached(schema, definitions):
        parts.append(_section(_title(name, path, definitions[name]), definitions[name], definitions))
    return "\n".join(parts)


def schema_text() -> str:
    """The schema as the package holds it."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _reached(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[tuple[str, str]]:
    """The models with fields below the top, each once, with the path of the field that leads to it first.

    An input of a union has the sections of a definition, so those are reached from the top.
    """
    seen: set[str] = set()
    inputs: list[tuple[Schema, str]] = []

    def walk(node: Schema, path: str) -> Iterator[tuple[str, str]]:
        for field, value in node.get("properties", {}).items():
            place = f"{path}.{field}" if path else field
            for name in _references(value):
                if name not in seen and "properties" in definitions[name] and name != "Threshold":
                    seen.add(name)
                    yield name, place
                    if name == "UnionInput":
                        inputs.append((definitions[name], place))
                    else:
                        yield from walk(definitions[name], place)

    yield from walk(schema, "")
    for node, path in inputs:
        yield from walk(node, path)


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for key, value in node.items() if key != "examples" for name in _references(value)]
    return [name for item in node for name in _references(item)] if isinstance(node, list) else []


def _title(name: str, path: str, definition: Schema) -> str:
    if name == "Deployment":
        return f"{path}, one of several deployments"
    for field in ("kind", "type"):
        constant = definition["properties"].get(field, {}).get("const")
        if constant is not None:
            return f"{path}, {field} {constant}"
    return path


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _section(title: str, node: Schema, definitions: Mapping[str, Schema]) -> str:
    required = {*node.get("required", ()), *node.get("else", {}).get("required", ())}
    text = " ".join(str(node.get("description", "")).split("\n\n")[0].split())
    lines = [f"## {title}", "", *([text, ""] if text else [])]
    lines += ["| field | value | default | meaning | example |", "| --- | --- | --- | --- | --- |"]
    base = definitions["Live"]["properties"]
    for field, value in node["properties"].items():
        if node is definitions["Deployment"] and field in base:
            continue
        cells = [
            f"`{field}`",
            _value(value, definitions),
            "required" if field in required else _default(value),
            str(value.get("description", "")),
            _example(field, value, definitions),
        ]
        lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _value(node: Schema, definitions: Mapping[str, Schema]) -> str:
    """What may be written, in words."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if "enum" in definitions[name]:
            return _value(definitions[name], definitions)
        return "a share or a count" if name == "Threshold" else "a section"
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        words = [_value(choice, definitions) for choice in choices]
        return " or ".join(dict.fromkeys(word for word in words if word))
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node["enum"])
    match node.get("type"):
        case "string":
            return _text(node.get("pattern", ""))
        case "integer":
            return "a whole number"
        case "number":
            return "a number"
        case "boolean":
            return "`true`, `false`"
        case "array":
            items = _value(node.get("items", {}), definitions) or "values"
            return f"a list of {'sections' if items == 'a section' else items}"
        case "object":
            return "names with values"
        case "null":
            return ""
    return "any value"


def _text(pattern: str) -> str:
    if not pattern:
        return "text"
    if pattern == durations.PATTERN:
        return "a duration"
    return {r"\$\{": "", r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$": "a share"}.get(pattern, "a time")


def _default(node: Schema) -> str:
    if "default" not in node:
        return ""
    default = node["default"]
    if isinstance(default, dict | list):
        return ""
    return f"`{json.dumps(default) if isinstance(default, bool) else default}`"


def _example(field: str, node: Schema, definitions: Mapping[str, Schema]) -> str:
    """`field: value` from the field's examples, else its default or first choice; a section's example is its table."""
    examples = node.get("examples")
    if not examples:
        references = _references(node)
        choices = definitions[references[0]].get("enum") if references else node.get("enum")
        value = node.get("default", choices[0] if choices else node.get("const"))
        if value is None or isinstance(value, dict | list):
            value = {"boolean": True, "integer": 2, "object": {"name": "value"}}.get(node.get("type", ""), value)
        if value is None or value == []:
            return ""
        examples = [value]
    return f"`{field}: {_yaml(examples[0])}`"


def _yaml(value: Any) -> str:
    match value:
        case bool():
            return json.dumps(value)
        case dict():
            return "{" + ", ".join(f"{name}: {_yaml(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value)


if __name__ == "__main__":
    PAGE.write_text(fields_page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
