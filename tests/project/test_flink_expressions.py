"""What `import flink-sql` makes of an expression gives in Spark what the expression gave in real Flink.

`python -m tests.tools.flink_values` makes the record of Flink, and `python -m tests.tools.flink_functions` the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.project.flink_expressions import Known, Scope, known_functions, translated
from spark_jobs.project.flink_parser import FlinkParser
from spark_jobs.project.flink_types import FlinkType, Kind, common, flink_type
from tests.tools import flink_functions


@pytest.fixture(scope="module")
def parser() -> Iterator[FlinkParser]:
    with FlinkParser() as parser:
        yield parser


@pytest.fixture(scope="module")
def results(spark) -> list[tuple[flink_functions.Recorded, str, str, bool]]:
    """Each recorded expression: what import writes, how Spark differs, and whether import has said CHECK."""
    return [(one, made.sql, outcome, bool(made.remarks)) for one, made, outcome in flink_functions.compared(spark)]


def test_what_is_written_without_a_check_gives_what_flink_gave(results) -> None:
    sure = [(one.sql, one.zone, sql, outcome) for one, sql, outcome, doubted in results if not doubted]
    wrong = [each for each in sure if each[3] not in ("same", "stops") and not each[3].startswith("before 1970")]
    assert len(sure) > 350 and not wrong


def test_the_list_is_what_both_engines_gave(spark) -> None:
    found = flink_functions.functions(spark)
    assert Path(flink_functions.LIST).read_text() == flink_functions.list_text(found)
    assert Path(flink_functions.PAGE).read_text() == flink_functions.page_text(found)


def test_what_differs_is_seen_where_the_list_says_that_it_is_alike(spark) -> None:
    planted = {
        name: Known(one.gives, "" if name == "/(WHOLE, WHOLE)" else one.spark)
        for name, one in known_functions().items()
    }
    outcomes = {one.sql: outcome for one, _, outcome in flink_functions.compared(spark, planted) if one.zone == "UTC"}
    assert outcomes["i / j"].startswith("Flink gives INT, Spark DOUBLE")
    assert outcomes["i + j"] == "stops"  # Flink wraps around


def test_the_record_is_of_all_that_is_given() -> None:
    record = json.loads((flink_functions.FOLDER / "record.json").read_text())
    given = flink_functions.GIVEN
    assert [one["sql"] for one in record["results"] if one["zone"] == "UTC"] == [
        *given["zoned"], *given["scalars"], *given["aggregates"]
    ]  # fmt: skip


SCOPE = Scope(
    {"ts": "`ts`", "row": "`row`", "name": "`name`", "odd": "`odd`", "at": "`at`"},
    {
        "ts": flink_type("BIGINT"),
        "row": flink_type("ROW<`n` INT, `inner` ROW<`name` STRING>>"),
        "name": flink_type("STRING"),
        "at": flink_type("TIMESTAMP_LTZ(3)"),
    },
    "t",
    "Asia/Shanghai",
)


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("ts / 1000", "DIV(ts, 1000)"),
        ("t.row.n / 2", "DIV(`row`.n, 2)"),
        ("SUM(row.n) FILTER (WHERE ts / 2 > 1)", "CAST(SUM(`row`.n) FILTER (WHERE DIV(ts, 2) > 1) AS INTEGER)"),
        ("row.inner.name = 'Köln ☃ 😀 \\d'", "`row`.inner.name = 'Köln ☃ 😀 \\\\d'"),
        ("CAST(at AS DATE)", "CAST(FROM_UTC_TIMESTAMP(at, 'Asia/Shanghai') AS DATE)"),
    ],
)
def test_operands_types_decide_what_is_written(parser: FlinkParser, flink: str, spark: str) -> None:
    made = translated(parser.expression(flink), SCOPE, parser)
    assert (made.sql.replace("`", ""), made.remarks) == (spark.replace("`", ""), ())


@pytest.mark.parametrize(
    ("flink", "why"),
    [
        ("odd / 2", "/(?, INT) was not compared with Flink"),
        ("SOUNDEX(name)", "SOUNDEX(TEXT) was not compared with Flink"),
        ("FLOOR(ts TO HOUR)", "FLOOR HOUR(WHOLE) was not compared with Flink"),
        ("REPEAT(name, ts)", "Flink gives"),
    ],
)
def test_what_is_not_known_to_be_alike_gets_a_check(parser: FlinkParser, flink: str, why: str) -> None:
    made = translated(parser.expression(flink), SCOPE, parser)
    assert any(one.why.startswith("CHECK") and why in one.why for one in made.remarks)


def test_without_a_zone_in_the_script_what_depends_on_it_gets_a_check(parser: FlinkParser) -> None:
    made = translated(parser.expression("HOUR(at)"), Scope(SCOPE.columns, SCOPE.types), parser)
    assert [one.why for one in made.remarks] == [
        "CHECK: Flink takes the session's time zone, which the script does not set; here it is UTC"
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", FlinkType(Kind.INSTANT)),
        ("INTEGER NOT NULL", FlinkType(Kind.WHOLE, narrower=(Kind.INT,))),
        ("ARRAY<DECIMAL(10, 2)>", FlinkType(Kind.ARRAY, {"": FlinkType(Kind.DECIMAL)})),
        ("MAP<STRING, ROW<a DATE>>", FlinkType(Kind.MAP, {"": FlinkType(Kind.ROW, {"a": FlinkType(Kind.DATE)})})),
    ],
)
def test_types_are_read(text: str, found: FlinkType) -> None:
    assert flink_type(text) == found


def test_numbers_have_the_widest_type_together() -> None:
    assert common([flink_type("INT"), flink_type("BIGINT"), flink_type("NULL")]) == flink_type("BIGINT")
    assert common([flink_type("INT"), flink_type("DOUBLE")]) == flink_type("DOUBLE")
    assert common([flink_type("INT"), flink_type("STRING")]).kind is Kind.UNKNOWN
