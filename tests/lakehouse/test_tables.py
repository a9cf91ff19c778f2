from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_jobs.lakehouse.corrections import CORRECTION_FACTS
from spark_jobs.lakehouse.published_table import FACTS
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA, row_frame
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS, VERDICT_FACTS
from spark_jobs.sources import QUARANTINE_SCHEMA

PAGE = Path(__file__).parents[2] / "docs/tables.md"


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("`<table>`: windows", FACTS),
        ("`<table>__verdicts`", VERDICT_FACTS),
        ("`<table>__verdicts`", COMPARISON_COLUMNS),
        ("`<table>__corrections`", CORRECTION_FACTS),
        ("`<table>__quarantine`", QUARANTINE_SCHEMA),
        ("`runs`", RUNS_SCHEMA),
        ("`timeline_state`", TIMELINE_STATE_SCHEMA),
    ],
)
def test_every_column_is_on_the_page_of_tables(heading: str, schema: StructType) -> None:
    section = PAGE.read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    words = re.findall(r"`([\w.]+)`", section)
    begun = tuple(word.rstrip(".") for word in words if word.endswith("..."))
    assert [name for name in schema.names if name not in words and not name.startswith(begun)] == []


def test_a_row_of_python_values_is_the_row_that_spark_reads(spark: SparkSession) -> None:
    at = datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
    values = {
        "run_id": "a'b", "as_of": {0: 12, 7: 1 << 40}, "whole": True, "fidelity_reasons": ["x", "y"], "records_read": 3,
        "changes": {}, "timings": {"plan": 0.5}, "layout": 3, "started_at": at,
    }  # fmt: skip
    frame = row_frame(spark, [values.get(name) for name in RUNS_SCHEMA.names], RUNS_SCHEMA)
    assert frame.schema.simpleString() == RUNS_SCHEMA.simpleString()
    (row,) = frame.collect()
    # Spark gives times as local ones without a zone; such a time goes in again as the same instant.
    (again,) = row_frame(spark, row, RUNS_SCHEMA).collect()
    assert again == row
    assert row["started_at"].astimezone(UTC) == at
    written = row.asDict()
    assert {name: written[name] for name in values if name != "started_at"} == {
        name: value for name, value in values.items() if name != "started_at"
    }
    assert all(written[name] is None for name in RUNS_SCHEMA.names if name not in values)
    state = {"pipeline": "p", "steps": b"\x00\xff", "as_of": {1: 2}}
    (row,) = row_frame(
        spark, [state.get(name) for name in TIMELINE_STATE_SCHEMA.names], TIMELINE_STATE_SCHEMA
    ).collect()
    assert (row["pipeline"], bytes(row["steps"]), row["as_of"], row["saved_at"]) == ("p", b"\x00\xff", {1: 2}, None)
