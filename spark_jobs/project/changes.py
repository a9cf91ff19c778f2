"""Change records of a database, as Debezium writes them, by the rows after each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spark_jobs.project.sample import Sample, ddl_of

_BESIDE_ROWS = ("op", "ts_ms", "source")
_FIELDS = frozenset({"before", "after", "transaction", "payload", "schema", *_BESIDE_ROWS})


def of_rows(sample: Sample) -> Sample:
    """The sample with the row after each change as a record, and without deletes; itself where it holds no changes."""
    has_schema = all(isinstance(record.get("payload"), Mapping) and "schema" in record for record in sample.records)
    changes = [record["payload"] if has_schema else record for record in sample.records]
    rows = [_row(change) for change in changes]
    if not all(map(_is_change, changes)) or not any(rows):
        return sample
    records, found = [], []
    for record, change, row in zip(sample.records, changes, rows, strict=True):
        if row is not None:
            outside = {name: value for name, value in record.items() if name not in _FIELDS}
            beside = {name: change[name] for name in _BESIDE_ROWS if name in change}
            records.append(outside | beside | row)
            found.append(row)
    names = {name for row in found for name in row}
    return replace(
        sample,
        records=records,
        schema=None if sample.schema is None else ddl_of(found),
        log_columns=(sample.log_columns | set(_BESIDE_ROWS)) - names,
        envelope="{kind: debezium, schema_include: true}" if has_schema else "debezium",
        deletes=sum(change["op"] == "d" for change in changes),
    )


def _is_change(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("op"), str) and {"before", "after"} <= record.keys()


def _row(change: Mapping[str, Any]) -> dict[str, Any] | None:
    row = change.get("after")
    return dict(row) if isinstance(row, Mapping) else None
