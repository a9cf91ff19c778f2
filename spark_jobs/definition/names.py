"""Names that a definition gives to columns and tables, and the reserved ones.

Names are compared without case, as Spark and Hive do: `Carrier` and `carrier` are one column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from spark_jobs.definition.fields import Refusal, Refusals, shown

RESERVED_PREFIX = "rw_"
RESERVED_COLUMNS = frozenset(
    {
        *("run_id", "window_start", "window_end", "pane", "state", "closed_at"),
        *("records_on_time", "records_late", "records_dropped", "records_not_counted"),
        *("partition", "offset", "sequence", "arrival", "event_time", "windows_missed", "side_output", "missed_by"),
        *("range_start", "revision", "cause", "as_of", "valid_from", "valid_to"),
    }
)
"""The columns of the published tables and of their side tables."""

RESERVED_TABLES = frozenset({"runs", "timeline_state"})

MAX_PIPELINE_NAME = 100
"""Letters of a pipeline's name. It is a tag of its DAGs, for which Airflow has room for 100, and part of file names."""

MAX_NAMESPACE = 255
"""Characters of a namespace: more than any catalog takes."""

_PIPELINE = re.compile(r"[a-z][a-z0-9_]*")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_pipeline_name(text: str) -> bool:
    """Whether a pipeline can have this name; such a text is safe as the name of a folder."""
    return len(text) <= MAX_PIPELINE_NAME and _PIPELINE.fullmatch(text) is not None


def _pipeline_name(name: str) -> str:
    if not _PIPELINE.fullmatch(name):
        hint = f"write lower-case letters, digits and _{_suggested(name.lower())}"
        raise Refusal(f"{shown(name)} is not a name", hint)
    if len(name) > MAX_PIPELINE_NAME:
        raise Refusal(f"a name of {len(name)} characters", f"write at most {MAX_PIPELINE_NAME}")
    return name


def _table_name(name: str) -> str:
    if not _COLUMN.fullmatch(name):
        raise Refusal(f"{shown(name)} is not a table name", f"write letters, digits and _{_suggested(name)}")
    if "__" in name:
        hint = f"write `{re.sub('__+', '_', name)}`"
        raise Refusal(f"{shown(name)} holds `__`, which sets the side tables apart", hint)
    if name.lower() in RESERVED_TABLES:
        raise Refusal(f"{shown(name)} is a table of Rewindow's own", "give the table another name")
    return name


def _namespace(name: str) -> str:
    if len(name) > MAX_NAMESPACE:
        raise Refusal(f"a namespace of {len(name)} characters", f"write at most {MAX_NAMESPACE}")
    if not all(_COLUMN.fullmatch(part) for part in name.split(".")):
        raise Refusal(f"{shown(name)} is not a namespace", "write letters, digits and _, in parts joined by dots")
    return name


PipelineName = Annotated[str, AfterValidator(_pipeline_name)]
TableName = Annotated[str, AfterValidator(_table_name)]
Namespace = Annotated[str, AfterValidator(_namespace)]


def _column_refusals(names: Iterable[str], taken: Mapping[str, str]) -> list[Refusal]:
    """What is wrong with these column names; `taken` maps names in lower case to what already has that name."""
    refusals: list[Refusal] = []
    seen = dict(taken)
    for name in names:
        lower = name.lower()
        if not _COLUMN.fullmatch(name):
            hint = f"write letters, digits and _, no digit first{_suggested(name)}"
            refusals.append(Refusal(f"{shown(name)} is not a column name", hint, (name,)))
        elif lower.startswith(RESERVED_PREFIX):
            what = f"names that begin with `{RESERVED_PREFIX}` are kept for Rewindow's own columns"
            refusals.append(Refusal(what, "choose another name", (name,)))
        elif lower in RESERVED_COLUMNS:
            refusals.append(Refusal(f"{shown(name)} is a column of Rewindow's own", "choose another name", (name,)))
        elif lower in seen:
            refusals.append(Refusal(f"{shown(name)} is already {seen[lower]}", "choose another name", (name,)))
        seen.setdefault(lower, f"the name of `{name}`")
    return refusals


def _read_named_expressions(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, Mapping):
        return value
    refusals: list[Refusal] = []
    expressions: dict[str, str] = {}
    for name, expression in value.items():
        if not isinstance(expression, str):
            what = "is empty" if expression is None else f"{shown(expression)} is not text"
            hint = "write a SQL expression" if expression is None else f'write it in quotes: "{expression}"'
            refusals.append(Refusal(what, hint, (name,)))
        elif not expression.strip():
            refusals.append(Refusal("is empty", "write a SQL expression", (name,)))
        else:
            expressions[name] = expression.strip()
    keys = info.data.get("keys", {}) if info.field_name != "keys" else {}
    taken = {name.lower(): f"the name of the key `{name}`" for name in keys}
    refusals += _column_refusals((str(name) for name in value), taken)
    if refusals:
        raise Refusals(refusals)
    return expressions


NamedExpressions = Annotated[dict[str, str], BeforeValidator(_read_named_expressions)]
"""SQL expressions by column name; the names of `aggregates` differ from those of `keys`."""


def _suggested(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    return f": `{plain}`" if _COLUMN.fullmatch(plain) else ""
