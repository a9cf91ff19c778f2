"""`rewindow compare` as its user sees it: three months of real flights against what Flink emitted for them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from rich.console import Console

from spark_jobs.cli.comparison import print_report
from spark_jobs.runs.life.verdicts import Verdicts
from tests.command_line import Rewindow, in_process

SAMPLE = Path("dags/pipelines/departures_hourly.yaml")


@pytest.fixture
def rewindow(spark, monkeypatch, capfd) -> Rewindow:
    return in_process(monkeypatch, capfd)


def test_the_sample_matches_and_the_late_records_behind_the_differences_are_listed(rewindow) -> None:
    code, out, err = rewindow("compare", str(SAMPLE), "--json", "--limit", "1")
    assert code == 0, err
    report = json.loads(out)
    assert report["verdicts"] == {"match": 11587, "late_arrivals": 2910, "all_late": 159}
    assert report["late_records"] == 4447
    (top,) = report["top"]
    assert (top["carrier"], top["window_start"]) == ("UA", "2013-03-08T22:00:00Z")
    assert (top["flights__emitted"], top["flights"], top["flights__complete"]) == (10, 10, 17)
    assert {cause["carrier"] for cause in report["causes"]} == {"UA"}
    assert all(cause["late_by"] > 0 for cause in report["causes"])


def test_another_jobs_output_is_a_mismatch_with_its_nearest_explanation_and_closes_the_gate(rewindow, tmp_path) -> None:
    text = SAMPLE.read_text().replace("emitted_hourly.parquet", "emitted_hourly_refining.parquet")
    other = tmp_path / "other_job.yaml"
    other.write_text(text.replace("tests/data", str(Path("tests/data").resolve())))
    february = ["--from", "2013-02-01T00:00:00Z", "--to", "2013-03-01T00:00:00Z"]
    code, out, _ = rewindow("compare", str(other), *february, "--limit", "3")
    assert code == 3
    assert "equals_complete" in out
    assert "Next: Some emitted values equal the complete ones" in out


def upserted(spark, rows, kafka) -> str:
    """As Flink's upsert-kafka writes it: key fields in the record's key, what is no key in its value."""
    kafka.create_topic("live_sink", 3, {"cleanup.policy": "compact"})
    key = F.to_json(F.struct("key", "window_start", "window_end"), {"ignoreNullFields": "false"}).alias("key")
    value = F.to_json(F.struct("pane", "count", "sum", "min", "max")).alias("value")
    writer = rows.select(key, value).write.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
    writer.option("topic", "live_sink").save()
    key_schema, value_schema = "key STRING, window_start TIMESTAMP, window_end TIMESTAMP", "pane INT, count BIGINT"
    return (
        f"{{kind: kafka, servers: '{kafka.servers}', topic: live_sink, key: {{format: json, schema: '{key_schema}'}}, "
        f"value: {{format: json, schema: '{value_schema}, sum BIGINT, min BIGINT, max BIGINT'}}}}\n  mode: upsert"
    )


@pytest.mark.long
def test_what_flink_emitted_gives_the_same_report_from_a_topic(rewindow, spark, kafka, tmp_path) -> None:
    rows = spark.read.parquet("tests/data/flights/emitted_hourly.parquet").where("month(window_start) = 2")
    text = SAMPLE.read_text().replace("tests/data", str(Path("tests/data").resolve()))
    files, rest = text.index("  source:", text.index("\nlive:")), text.index("  keys: {carrier: key}")
    named = tmp_path / "results_in_a_topic.yaml"
    named.write_text(text[:files] + f"  source: {upserted(spark, rows, kafka)}\n" + text[rest:])
    reports = []
    for path in (SAMPLE, named):
        code, out, err = rewindow(
            "compare", str(path), "--from", "2013-02-04T00:00:00Z", "--to", "2013-02-06T00:00:00Z", "--json"
        )
        assert code == 0, err
        reports.append(json.loads(out))
    assert reports[0]["verdicts"]["match"] > 200
    assert "Kafka topic live_sink at" in reports[1]["emitted"]
    of_the_source = ("emitted", "rows_outside_range", "notes")
    first, second = ({k: v for k, v in report.items() if k not in of_the_source} for report in reports)
    assert first == second


def test_a_definition_that_names_no_emitted_windows_is_told_what_to_add(rewindow, tmp_path) -> None:
    text, _, _ = SAMPLE.read_text().partition("# What the live job emitted")
    alone = tmp_path / "alone.yaml"
    alone.write_text(text)
    code, _, err = rewindow("compare", str(alone))
    assert code == 2
    assert "Add a `live:` section" in err


def test_a_narrow_terminal_shows_the_digits_that_differ() -> None:
    window = {
        "verdict": "mismatch", "label": "unexplained", "basis": "log", "n__emitted": 300, "n": 300, "n__complete": 300,
        "kwh__emitted": 993.629, "kwh": 993.6389999999992, "kwh__complete": 993.6389999999992, "differs": ["kwh"],
        "emitted_rows": 1, "records_undecided": 0, "fit_keys": None, "fit_left_out": None,
        "machine": "press-7", "window_start": "2026-05-05T10:00:00Z", "window_end": "2026-05-05T11:00:00Z",
    }  # fmt: skip
    console = Console(width=80, file=io.StringIO())
    print_report("machines", Verdicts(counts={"mismatch": 1}, windows=1, top=[window]), console)
    table = console.file.getvalue().partition("Largest changes")[2]
    rows = [line for line in table.splitlines() if line.startswith("│")]
    cells = zip(*([cell.strip() for cell in row.strip("│").split("│")] for row in rows), strict=True)
    assert {"993.629", "993.6389999999992", "kwh"} <= {"".join(cell) for cell in cells}
    assert "…" not in table
