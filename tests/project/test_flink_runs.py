"""What imported definitions give on records: the windows that Flink's rules give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.project.flink_import import import_script
from spark_jobs.project.flink_parser import FlinkParser
from tests.runs.small_runs import run

DATA = Path(__file__).parents[1] / "data/flink_queries"
NESTED = """
CREATE TABLE shop_log (p INT, o BIGINT, a STRING, id BIGINT, price BIGINT, item ROW<id BIGINT, price BIGINT>, ts BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'nested.jsonl', 'format' = 'json');
SET 'table.local-time-zone' = 'UTC';
CREATE TABLE by_alias (item_id BIGINT, total BIGINT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO by_alias SELECT s.item.id AS item_id, SUM(s.item.price) AS total, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE shop_log, DESCRIPTOR(rt), INTERVAL '1' MINUTE)) AS s
WHERE s.item.price > 0 GROUP BY s.item.id, window_start, window_end;
"""
CLOCK = """
SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE c (p INT, o BIGINT, a STRING, page STRING, ts BIGINT, rt AS TO_TIMESTAMP(FROM_UNIXTIME(ts / 1000)),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'clicks.jsonl', 'format' = 'json');
CREATE TABLE days (page STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO days SELECT page, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(rt), INTERVAL '1' DAY))
GROUP BY page, window_start, window_end;
CREATE TABLE seconds (page STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO seconds SELECT page, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY page, window_start, window_end;
"""


@pytest.fixture(scope="module")
def parser() -> Iterator[FlinkParser]:
    with FlinkParser() as parser:
        yield parser


def imported(script: str, parser: FlinkParser, folder: Path) -> dict[str, Pipeline]:
    """The definitions of a script over files of `tests/data/flink_queries`, in the order of their log."""
    found = import_script(re.sub(r"'path' = '", f"'path' = '{DATA}/", script), "script.sql", parser)
    assert not found.missing
    position = r"\g<0>  position: {partition: p, offset: o, arrival: a, arrival_unit: iso}\n"
    made = {}
    for definition in found.definitions:
        text = definition.text.replace("end_of_input: freeze", "end_of_input: flush", 1)
        text, count = re.subn(r"^  format: json.*\n", position, text, count=1, flags=re.MULTILINE)
        assert count, text
        path = folder / f"{definition.name}.yaml"
        path.write_text(f"{text}output: {{namespace: imported}}\n")
        made[definition.name] = load_pipeline(path)
    return made


def windows(spark, pipeline: Pipeline, *columns: str) -> set[tuple]:
    run(spark, pipeline)
    rows = spark.table(Tables.of(pipeline).windows).where("valid_to IS NULL AND records_on_time > 0")
    return {tuple(row) for row in rows.selectExpr("string(window_start)", *columns).collect()}


def test_fields_of_rows_are_not_columns_of_their_last_names(spark, parser: FlinkParser, tmp_path: Path) -> None:
    pipeline = imported(NESTED, parser, tmp_path)["by_alias"]
    at_ten = {("2024-03-01 10:00:00", 0, 36, 3), ("2024-03-01 10:00:00", 1, 39, 3)}
    assert windows(spark, pipeline, "item_id", "total", "n") == at_ten | {("2024-03-01 10:10:00", 0, 1, 1)}


def test_seconds_of_the_sessions_clock_are_whole_and_local(spark, parser: FlinkParser, tmp_path: Path) -> None:
    made = imported(CLOCK, parser, tmp_path)
    days = windows(spark, made["days"], "page", "n")
    assert {one for one in days if one[1] == "day"} == {
        ("2024-03-01 00:00:00", "day", 1), ("2024-03-02 00:00:00", "day", 1)
    }  # fmt: skip
    found = {one for one in windows(spark, made["seconds"], "page", "n") if one[1] == "s"}
    assert ("2024-03-02 08:00:00", "s", 2) in found
