from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from spark_jobs.lakehouse.corrections import CORRECTION_FACTS
from spark_jobs.lakehouse.emitted_table import EMITTED_COLUMNS
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS, VERDICT_FACTS
from spark_jobs.sources import QUARANTINE_SCHEMA

PAGE = Path(__file__).parents[2] / "docs/tables.md"


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("`<table>`: windows", FACTS),
        ("`<table>__verdicts`", VERDICT_FACTS),
        ("`<table>__verdicts`", COMPARISON_COLUMNS),
        ("`<table>__emitted`", EMITTED_COLUMNS),
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
