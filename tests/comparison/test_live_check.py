"""`rewindow live check`: a section `live:` that fits the rows passes; each usual mistake in it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.comparison.join_keys import key_types
from spark_jobs.comparison.live_check import complete_windows, look_at
from spark_jobs.comparison.live_findings import Finding, Subject
from spark_jobs.definition import load_pipeline
from spark_jobs.runs.planning.plan import planned_records
from tests.sampling import first_of

FLIGHTS = Path("dags/pipelines/departures_hourly.yaml")
EMITTED = "tests/data/flights/emitted_hourly.parquet"
Look = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def look(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """Looks at the sample's emitted rows, changed, with other lines in `live:`. The history is read once."""
    defined = load_pipeline(FLIGHTS)
    with planned_records(spark, defined) as (plan, records), complete_windows(plan, defined, records) as replay:
        complete = replay.windows(plan.span).cache()
        types = key_types(records.schema, tuple(defined.keys))

        def findings(change: Callable[[DataFrame], DataFrame] = lambda rows: rows, **live: Any) -> list[Finding]:
            folder = str(tmp_path_factory.mktemp("emitted") / "rows")
            change(spark.read.parquet(EMITTED).limit(1000)).write.parquet(folder)
            section = {
                "source": {"kind": "files", "path": folder, "format": "parquet"}, "keys": {"carrier": "key"},
                "values": {"flights": "count", "distance": "sum", "shortest": "min"}, **live,
            }  # fmt: skip
            text = FLIGHTS.read_text().partition("\nlive:")[0]
            pipeline = load_pipeline(FLIGHTS, text=f"{text}\n{yaml.safe_dump({'live': section})}")
            return list(look_at(EmittedRows(spark, pipeline, types), complete, plan, 400).findings)

        yield findings
        complete.unpersist()


def problems(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.is_problem]


def test_a_section_that_fits_has_no_problem(look: Look) -> None:
    found = look()
    assert not problems(found)
    assert {finding.subject for finding in found} == {Subject.WINDOWS, Subject.KEYS, Subject.VALUES}


@pytest.mark.parametrize(
    ("change", "live", "subject", "hint"),
    first_of(
        [
            (
                lambda rows: rows.withColumn("window_start", F.from_utc_timestamp("window_start", "America/New_York")),
                {"window": {"start": "window_start"}},
                Subject.WINDOWS,
                "America/New_York",
            ),
            (
                lambda rows: rows.withColumn("window_start", F.unix_seconds("window_start")),
                {"window": {"start": "window_start", "unit": "ms"}},
                Subject.WINDOWS,
                "`live.window.unit: s`",
            ),
            (
                lambda rows: rows.withColumn("last", F.col("window_start") + F.expr("INTERVAL 3599.999 SECONDS")),
                {"window": {"start": "window_start", "end": "last"}},
                Subject.WINDOWS,
                "`live.window.inclusive_end: 1 ms`",
            ),
            (
                lambda rows: rows.withColumn("last", F.col("window_start") + F.expr("INTERVAL 3599 SECONDS")),
                {"window": {"end": "last"}},
                Subject.WINDOWS,
                "`live.window.inclusive_end: 1 s`",
            ),
            (
                lambda rows: rows.withColumn("done", F.col("window_start") + F.expr("INTERVAL 1 HOUR")),
                {"window": {"start": "done"}},
                Subject.WINDOWS,
                "seems to hold the end",
            ),
            (lambda rows: rows.withColumn("key", F.lower("key")), {}, Subject.KEYS, "upper(trim(name))"),
            (lambda rows: rows.withColumn("key", F.concat(F.lit("x"), "key")), {}, Subject.KEYS, "`live.keys`"),
            (
                lambda rows: rows.withColumn("sum", F.col("sum") * 1000),
                {},
                Subject.VALUES,
                "Scale it under `live.values.distance`",
            ),
            (
                lambda rows: rows,
                {"values": {"flights": "count", "shortest": "max"}},
                Subject.VALUES,
                "Correct `live.values.shortest`",
            ),
            (
                lambda rows: rows.withColumn("at", F.col("window_start")),
                {"emitted_at": "at"},
                Subject.EMITTED_AT,
                "a watermark cannot close a window before its end",
            ),
            (lambda rows: rows.limit(100).unionAll(rows.limit(100)), {}, Subject.ROWS, "`live.pane`"),
            (
                lambda rows: rows.withColumn("seen", F.expr("map(17, 5L)")),
                {"last_offsets": "seen"},
                Subject.LAST_OFFSETS,
                "partitions",
            ),
        ],
        4,
    ),
)
def test_a_usual_mistake_is_named(look: Look, change, live: dict, subject: Subject, hint: str) -> None:
    found = problems(look(change, **live))
    assert [finding.subject for finding in found] == [subject], found
    assert hint in found[0].hint


@pytest.mark.long
def test_the_command_prints_what_it_found(spark: SparkSession) -> None:
    from spark_jobs.cli.app import app

    done = CliRunner().invoke(app, ["live", "check", "departures_hourly", "--rows", "200"])
    assert done.exit_code == 0, done.output
    assert "200 rows of" in done.output
    assert "`live:` fits" in done.output
