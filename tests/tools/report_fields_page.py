"""Write what the models of a report generate: `python -m tests.tools.report_fields_page`, in the root.

These are `docs/report-fields.md`, the reference of `report.json`, and `docs/report.schema.json`, its JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_jobs.report.model import json_schema

PAGE = Path("docs/report-fields.md")
SCHEMA = Path("docs/report.schema.json")

_INTRODUCTION = """\
# Fields of report.json

`rewindow report RUN --json` prints it; it lies beside the page of each run. [report.schema.json](report.schema.json) is
its JSON Schema; its `$id` is the version, which `format` in each report names. Fields are added within a version of the
format, never renamed or removed. Instants are epoch milliseconds and durations milliseconds, unless they are texts
(ISO-8601). A part is null where the run did not get that far.

`[]` is each entry of a list. `spark_jobs/runs/work/figures.py` defines each figure; page, list, command line and
approval use the same.

`python -m tests.tools.report_fields_page` generates this page and the schema from `spark_jobs/report/model.py`;
do not edit them by hand.
"""

Schema = Mapping[str, Any]


def report_fields_page() -> str:
    """The page: a table of the fields that are no part, and one for each part of a report."""
    schema = json_schema()
    fields: Mapping[str, Schema] = schema["properties"]
    parts = {name: field for name, field in fields.items() if _model(field, schema) is not None}
    seen: dict[str, str] = {}
    tables = [_table("The report", [(n, f["description"]) for n, f in fields.items() if n not in parts])]
    tables += [_table(f["title"], list(_rows({name: f}, schema, "", seen))) for name, f in parts.items()]
    return "\n".join([_INTRODUCTION, *tables])


def schema_text() -> str:
    """The schema as the page publishes it."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| `{name}` | {description} |" for name, description in rows]
    return "\n".join([f"## {title}\n", "| field | meaning |", "| --- | --- |", *lines, ""])


def _rows(fields: Mapping[str, Schema], schema: Schema, place: str, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Fields and those of the models below them, with what they mean; of a model that is `seen` only where it was."""
    for name, field in fields.items():
        path = f"{place}.{name}" if place else name
        below = _model(field, schema)
        within = path + "[]" * (field.get("type") == "array")
        known = None if below is None else seen.setdefault(below["title"], within)
        yield path, field["description"] + (f": see `{known}`" if known not in (None, within) else "")
        if below is not None and known == within:
            yield from _rows(below["properties"], schema, within, seen)


def _model(field: Schema, schema: Schema) -> Schema | None:
    """The model that a field holds, or each of its entries; None where no field of it is described."""
    for one in (field, field.get("items", {}), *field.get("anyOf", ())):
        if "$ref" in one:
            found = schema["$defs"][one["$ref"].rpartition("/")[2]]
            return found if all("description" in f for f in found.get("properties", {"": {}}).values()) else None
    return None


if __name__ == "__main__":
    PAGE.write_text(report_fields_page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
