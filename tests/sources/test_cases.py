"""Small inputs on which tools like this one go wrong, each with what is right: see tests/data/cases/expected.yaml."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import RewindowError
from spark_jobs.replay.assign import assign_windows
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.spec import Mode
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.sources import good, quarantined

CASES = Path(__file__).parents[1] / "data" / "cases"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "expected.yaml").read_text())


def outcome(spark: SparkSession, pipeline: Pipeline) -> dict[str, Any]:
    """The complete values by key, and the reasons of the records that cannot be used."""
    with planned_records(spark, pipeline, mode=Mode.COMPLETE) as (_, records):
        assigned = assign_windows(good(records), windows_of(pipeline))
        values = [F.expr(text).alias(name) for name, text in pipeline.aggregates.items()]
        rows = assigned.groupBy(*pipeline.keys, "window_start").agg(*values).drop("window_start").collect()
        reasons = sorted(row.reason for row in quarantined(records).collect())
    windows = {row[0]: [_plain(value) for value in row[1:]] for row in rows}
    return {"windows": windows, "quarantine": reasons}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("name", EXPECTED)
def test_each_case_gives_what_is_right(spark: SparkSession, name: str) -> None:
    expected = EXPECTED[name]
    pipeline = load_pipeline(CASES / "dags" / "pipelines" / f"{name}.yaml")
    if "refused" in expected:
        with pytest.raises(RewindowError) as refused:
            outcome(spark, pipeline)
        assert expected["refused"] in str(refused.value)
        return
    found = outcome(spark, pipeline)
    assert found["windows"] == expected["windows"]
    assert len(found["quarantine"]) == len(expected.get("quarantine", []))
    for reason, part in zip(found["quarantine"], expected.get("quarantine", []), strict=True):
        assert part in reason


def test_every_case_has_an_expected_value() -> None:
    names = {file.stem for file in (CASES / "dags" / "pipelines").glob("*.yaml")}
    assert names == EXPECTED.keys() | {"sum_overflow"}
