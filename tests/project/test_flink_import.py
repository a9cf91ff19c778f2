"""Flink SQL scripts become definitions, with what has no counterpart listed.

Beside each script in `tests/data/flink_sql` lies what it becomes, `NAME.expected`: the definitions, or else the list.
`python -m tests.project.test_flink_import` writes these files anew, for a person to read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors.exceptions import captured
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.project.flink_import import Imported, import_script
from spark_jobs.project.flink_parser import FlinkParser
from spark_jobs.project.flink_script import spark_type
from spark_jobs.sources import check_expressions
from tests.registry import SchemaRegistry
from tests.sampling import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tests/data/flink_sql").glob("*.sql"))


@pytest.fixture(scope="module")
def parser() -> Iterator[FlinkParser]:
    with FlinkParser() as parser:
        yield parser


def imported(script: Path, parser: FlinkParser) -> Imported:
    text = script.read_text()
    start = re.search(r"^-- timer-start: (\S+)", text, re.MULTILINE)
    return import_script(text, script.name, parser, start[1] if start else None)


def shown(found: Imported) -> str:
    """The definitions, and the remarks where they are in none."""
    if found.definitions:
        return "---\n".join(definition.text for definition in found.definitions)
    return "".join(f"line {remark.line}: {remark.what}: {remark.why}\n" for remark in found.remarks)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_becomes_what_is_expected(script: Path, parser: FlinkParser, tmp_path: Path) -> None:
    found = imported(script, parser)
    assert shown(found) == script.with_suffix(".expected").read_text()
    for definition in found.definitions:
        load_pipeline(tmp_path / f"{definition.name}.yaml", text=definition.text)
        assert all(f"line {remark.line}: {remark.what}" in definition.text for remark in found.remarks)
    assert bool(found.definitions) != script.stem.startswith("no_")


def test_the_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = re.findall(r"^```console\n(.*?)\n```", (ROOT / "docs/flink.md").read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text((ROOT / "tests/data/flink_sql/tumble.sql").read_text())
    done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "dags/pipelines").glob("*.yaml")
    assert load_pipeline(written).watermark.timer_start is not None
    beside = ("dags/rewindow_pipelines.py", "dags/pipeline.schema.json", f"expectations/{written.stem}.json")
    assert all((tmp_path / file).exists() and file in done.output for file in (*beside, "expectations/windows.json"))


BIDTIME = {"type": "long", "logicalType": "timestamp-millis"}
BID = {"type": "record", "name": "bid", "fields": [{"name": "bidtime", "type": BIDTIME}]}


def test_spark_accepts_the_definitions(
    parser: FlinkParser, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taxi.csv").write_text("1,2.5,2024-03-01 12:00:00\n")
    monkeypatch.setenv("REGISTRY_USER_INFO", "reader:any")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.ref")
    spark.sql("CREATE TABLE rewindow.ref.shops (id STRING, region STRING) USING iceberg")
    versions = "currency STRING, rate BIGINT, updated_at TIMESTAMP, valid_to TIMESTAMP"
    spark.sql(f"CREATE TABLE rewindow.ref.rates ({versions}) USING iceberg")
    with SchemaRegistry() as registry:
        registry.register("bids-value", BID)
        for script in sample(SCRIPTS[::4], SCRIPTS):
            for definition in imported(script, parser).definitions:
                text = definition.text.replace("file:///data/taxi", str(tmp_path / "taxi.csv"))
                text = text.replace("https://registry:8081", registry.url).replace(
                    "lake.ref.Shops", "rewindow.ref.shops"
                )
                pipeline = load_pipeline(tmp_path / f"{definition.name}.yaml", text=text)
                assert check_expressions(spark, pipeline) == [], script.stem


@pytest.mark.parametrize("name", ["secured_topic", "options_of_tables", "avro_registry", "lookup_by_processing_time"])
def test_no_secret_gets_into_a_definition_or_a_remark(name: str, parser: FlinkParser) -> None:
    (script,) = [script for script in SCRIPTS if script.stem == name]
    found = imported(script, parser)
    assert "s3cret" in script.read_text()
    assert "s3cret" not in shown(found) + str(found.remarks)


def test_text_that_is_not_flink_sql_is_refused_with_its_line_beside_a_spark_session(
    parser: FlinkParser, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A session puts PySpark's conversion of errors into py4j. It looks them up in Spark's JVM, by their number there.
    monkeypatch.setattr(captured, "convert_exception", lambda error: pytest.fail(f"{spark} sees {error}"))
    with pytest.raises(DefinitionError, match='Encountered "b" at line 2, column 14'):
        import_script("SET 'a' = 'b';\nSELECT a FRM b;", "job.sql", parser)


MIXED = """-- a ; comment
CREATE TABLE t (`value` BIGINT, `at` BIGINT, `start` STRING, r ROW<`hour` BIGINT>, ts TIMESTAMP(3), w AS `value` / 2,
  WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');
!set verbose=true;
EXECUTE STATEMENT SET BEGIN
INSERT INTO s1 SELECT `start`, SUM(w) AS total FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))
WHERE `start` <> ';' GROUP BY `start`, window_start, window_end;
INSERT INTO s2 SELEKT 1;
END;
/* ; */ CREATE VIEW v AS SELECT `value` + 1 AS `value`, r.`hour` / 5 AS `method`, ts FROM t WHERE `at` > 3;
INSERT INTO s3 SELECT `method`, SUM(`value` / 7) AS total
FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY `method`, window_start, window_end;
"""


def test_a_statement_that_cannot_be_read_takes_no_other_one_with_it(parser: FlinkParser) -> None:
    found = import_script(MIXED, "job.sql", parser)
    assert [one.name for one in found.definitions] == ["s1", "s3"]
    assert [(one.line, one.name) for one in found.missing] == [
        (4, "!set verbose=true"),
        (8, "INSERT INTO s2 SELEKT 1"),
    ]


def test_columns_named_by_words_of_flink_go_through_views_and_computed_columns(
    parser: FlinkParser, tmp_path: Path
) -> None:
    made = {one.name: one.text for one in import_script(MIXED, "job.sql", parser).definitions}
    one, three = (load_pipeline(tmp_path / f"{name}.yaml", text=made[name]) for name in ("s1", "s3"))
    assert one.aggregates == {"total": "SUM(DIV(value, 2))"}
    assert three.keys == {"method": "DIV(r.hour, 5)"} and three.filter.after_watermark == "at > 3"
    assert three.aggregates == {"total": "SUM(DIV(value + 1, 7))"}


TEXTS = """
CREATE TABLE t (a STRING, ts BIGINT, word AS REPLACE(a, '\\d  it''s', '-'), rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');
CREATE VIEW v AS SELECT rt, word, a FROM t WHERE a <> 'B''q\\';
CREATE VIEW both_kinds AS SELECT rt, word FROM v WHERE word = '\\' UNION ALL SELECT rt, a FROM v;
INSERT INTO t1 SELECT word, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(rt), INTERVAL '1' MINUTE))
GROUP BY word, window_start, window_end;
INSERT INTO t2 SELECT word, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE both_kinds, DESCRIPTOR(rt), INTERVAL '1' MINUTE))
GROUP BY word, window_start, window_end;
"""


def test_texts_of_computed_columns_views_and_unions_stay_what_they_are(parser: FlinkParser, tmp_path: Path) -> None:
    made = {one.name: one.text for one in import_script(TEXTS, "texts.sql", parser).definitions}
    one, two = (load_pipeline(tmp_path / f"{name}.yaml", text=made[name]) for name in ("t1", "t2"))
    word, not_q = r"REPLACE(a, '\\d  it\'s', '-')", r"a <> 'B\'q\\'"
    assert (one.keys, one.filter.after_watermark) == ({"word": word}, not_q)
    assert [part.input_columns for part in two.inputs] == [
        {"word": word, "is_counted": rf"({not_q}) AND ({word} = '\\')"}, {"word": "a", "is_counted": not_q}
    ]  # fmt: skip


def test_texts_keep_their_quotes_and_backslashes(parser: FlinkParser) -> None:
    ((statement,), _) = parser.statements("SELECT 'it''s `a`  \\d BETWEEN ASYMMETRIC' FROM t")
    item = statement.operands[1]
    assert item is not None
    assert parser.formatted(item.operands[0].node) == r"'it\'s `a`  \\d BETWEEN ASYMMETRIC'"


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("VARCHAR(20)", "STRING"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("ROW< `a b` INTEGER, `m` MAP< STRING, BYTES > > NOT NULL", "STRUCT<`a b`: INT, m: MAP<STRING, BINARY>>"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 2)"),
    ],
)
def test_types(flink: str, spark: str) -> None:
    assert spark_type(flink) == spark


if __name__ == "__main__":
    with FlinkParser() as of_flink:
        for path in SCRIPTS:
            path.with_suffix(".expected").write_text(shown(imported(path, of_flink)))


def test_a_query_without_a_definition_is_named_at_the_end_and_in_the_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text("""
        CREATE TABLE clicks (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
          'connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
        CREATE TABLE all_pages (page STRING, n BIGINT) WITH ('connector' = 'print');
        CREATE TABLE busy_pages (page STRING, n BIGINT) WITH ('connector' = 'print');
        INSERT INTO all_pages SELECT page, count(*) AS n
          FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY page, window_start, window_end;
        INSERT INTO busy_pages SELECT page, count(*) AS n
          FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))
          GROUP BY page, window_start, window_end HAVING count(*) > 100;
    """)
    command = ["import", "flink-sql", str(script), "--directory", str(tmp_path / "made")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 2
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["all_pages.yaml"]
    last = done.output.strip().splitlines()[-1]
    assert last.startswith("missing no definition of busy_pages, the query of line 8: HAVING")
    assert "let readers filter the rows" in last


def test_no_query_of_a_union_and_no_window_within_a_query_is_lost_without_a_word(parser: FlinkParser) -> None:
    script = ROOT / "tests/data/flink_sql/union_of_windows.sql"
    found = import_script(script.read_text(), script.name, parser, None)
    assert [one.name for one in found.definitions] == ["totals", "totals_2", "totals_4_windows"]
    assert [(one.name, one.line) for one in found.missing] == [("totals_3", 20), ("totals_4", 35)]


@pytest.mark.parametrize(("files", "kind"), [("data/*.jsonl", "json"), ("s3a://lake/rides/*.parquet", "parquet")])
def test_the_records_of_a_topic_can_lie_in_files(parser: FlinkParser, tmp_path: Path, files: str, kind: str) -> None:
    script = (ROOT / "tests/data/flink_sql/tumble.sql").read_text()
    (made,) = import_script(script, "tumble.sql", parser, None, f"files:{files}").definitions
    pipeline = load_pipeline(tmp_path / f"{made.name}.yaml", text=made.text)
    assert (pipeline.history.kind, pipeline.history.format) == ("files", kind)
    assert not pipeline.history.position.missing
    assert "CHECK: the columns of the files that hold them" in made.text
    if kind == "json":
        assert "kafka_offset BIGINT" in made.text
    with pytest.raises(DefinitionError, match=r"Write files:PATTERN"):
        import_script(script, "tumble.sql", parser, None, "data/*.jsonl")
