"""What `import flink-sql` makes of an expression gives in Spark what the expression gave in real Flink.

`python -m tests.tools.flink_values` makes the record of Flink, and `python -m tests.tools.flink_functions` the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import isclose

import pytest

from spark_jobs.project.flink_decimals import Digits
from spark_jobs.project.flink_expressions import Scope, known_functions, signature, translated
from spark_jobs.project.flink_parser import FlinkParser
from spark_jobs.project.flink_script import NoCounterpartError
from spark_jobs.project.flink_types import FlinkType, Kind, common, flink_type
from tests.tools import flink_functions
from tests.tools.flink_functions import Written
from tests.tools.spark_values import Asked, InSpark, together, values_in_spark


@pytest.fixture(scope="module")
def parser() -> Iterator[FlinkParser]:
    with FlinkParser() as parser:
        yield parser


@pytest.fixture(scope="module")
def in_spark() -> dict[Written, InSpark]:
    return flink_functions.in_spark()


def test_what_is_written_without_a_check_gives_what_flink_gave(parser: FlinkParser, in_spark) -> None:
    sure = [one for one in flink_functions.made(parser, known_functions()) if not one.translated.remarks]
    outcomes = [(one.written, flink_functions.difference(one.flink, in_spark[one.written])) for one in sure]
    wrong = [each for each in outcomes if each[1] not in ("same", "stops") and not each[1].startswith("before 1970")]
    assert len(sure) > 350 and not wrong


def test_the_list_is_what_both_engines_gave(parser: FlinkParser, in_spark) -> None:
    found = flink_functions.functions(in_spark, parser)
    assert flink_functions.LIST.read_text() == flink_functions.list_text(found)
    assert flink_functions.PAGE.read_text() == flink_functions.page_text(found)


def test_spark_gives_what_its_record_says(spark, in_spark) -> None:
    """In one query for each zone: an expression is left out where it stopped in a row."""
    wrong = []
    of_chance = Written("UUID()", "UTC", is_aggregate=False)
    for zone, is_aggregate in dict.fromkeys((one.zone, one.is_aggregate) for one in in_spark):
        frame = values_in_spark(spark, zone)
        for only, own in _by_rows(in_spark, zone, is_aggregate).items():
            found = together(frame, Asked(zone, is_aggregate, tuple(one.sql for one in own), only))
            wrong += [
                (one, result)
                for one, result in zip(own, found, strict=True)
                if one != of_chance
                and not _alike(
                    result, replace(in_spark[one], values={name: in_spark[one].values.get(name) for name in only})
                )
            ]
    assert not wrong


def _alike(one: InSpark, other: InSpark) -> bool:
    """Whether they are the same; a number of floating point but for the order in which its addends came."""
    if one == other or other.type not in ("double", "float"):
        return one == other
    same = ((one.values.get(name), value) for name, value in other.values.items())
    is_close = all(a == b or (None not in (a, b) and isclose(float(a), float(b), rel_tol=1e-12)) for a, b in same)
    return is_close and replace(one, values={}) == replace(other, values={})


def _by_rows(record: dict[Written, InSpark], zone: str, is_aggregate: bool) -> dict[tuple[str, ...], list[Written]]:
    """The expressions by the rows, or groups, that have values."""
    found: dict[tuple[str, ...], list[Written]] = {}
    for one, result in record.items():
        fine = tuple(sorted(name for name, value in result.values.items() if not isinstance(value, dict)))
        if fine and (one.zone, one.is_aggregate) == (zone, is_aggregate):
            found.setdefault(fine, []).append(one)
    return found


def test_what_differs_is_seen() -> None:
    (whole,) = (one for one in flink_functions.recorded() if one.sql == "i / j" and one.zone == "UTC")
    assert flink_functions.difference(whole, InSpark("double", {"0": "3.5"})).startswith(
        "Flink gives INT, Spark DOUBLE"
    )
    assert "Flink gives '3', Spark '4'" in flink_functions.difference(whole, InSpark("int", {"0": "4"}))


def test_the_record_is_of_all_that_is_given() -> None:
    record = json.loads((flink_functions.FOLDER / "record.json").read_text())
    given = flink_functions.GIVEN
    assert [one["sql"] for one in record["results"] if one["zone"] == "UTC"] == [
        *given["zoned"], *given["scalars"], *given["aggregates"]
    ]  # fmt: skip


SCOPE = Scope(
    {"ts": "`ts`", "item": "`item`", "name": "`name`", "odd": "`odd`", "at": "`at`", "price": "`price`"},
    {
        "ts": flink_type("BIGINT"),
        "item": flink_type("ROW<`n` INT, `inner` ROW<`name` STRING>>"),
        "name": flink_type("STRING"),
        "at": flink_type("TIMESTAMP_LTZ(3)"),
        "price": flink_type("DECIMAL(8, 2)"),
    },
    "t",
    "Asia/Shanghai",
)


@pytest.mark.parametrize(
    ("flink", "written"),
    [
        ("ts / 1000", "DIV(ts, 1000)"),
        ("t.item.n / 2", "CAST(DIV(`item`.n, 2) AS INTEGER)"),
        ("SUM(item.n) FILTER (WHERE ts / 2 > 1)", "CAST(SUM(`item`.n) FILTER (WHERE DIV(ts, 2) > 1) AS INTEGER)"),
        ("price / 3", "price / CAST(3 AS DECIMAL(10, 0))"),
        ("price * ts / 7", "CAST(price * ts AS DECIMAL(28, 2)) / CAST(7 AS DECIMAL(10, 0))"),
        ("price * 2 + 1", "price * 2 + 1"),
        ("price / item.n", "price / `item`.n"),
        ("SUM(price) / COUNT(*)", "CAST(SUM(price) AS DECIMAL(38, 2)) / CAST(COUNT(*) AS DECIMAL(19, 0))"),
        (
            "AVG(DISTINCT price) FILTER (WHERE ts > 1)",
            "CAST(SUM(DISTINCT price) FILTER (WHERE ts > 1) AS DECIMAL(38, 2)) / "
            "CAST(COUNT(DISTINCT price) FILTER (WHERE ts > 1) AS DECIMAL(19, 0))",
        ),
        ("item.`inner`.name = 'Köln ☃ 😀 \\d'", "`item`.inner.name = 'Köln ☃ 😀 \\\\d'"),
        ("CAST(`at` AS DATE)", "CAST(FROM_UTC_TIMESTAMP(at, 'Asia/Shanghai') AS DATE)"),
    ],
)
def test_operands_types_decide_what_is_written(parser: FlinkParser, flink: str, written: str) -> None:
    made = translated(parser.expression(flink), SCOPE, parser)
    assert (made.sql.replace("`", ""), made.remarks) == (written.replace("`", ""), ())


@pytest.mark.parametrize(
    ("flink", "why"),
    [
        ("odd / 2", "/(?, WHOLE) was not compared with Flink"),
        ("SOUNDEX(name)", "SOUNDEX(TEXT) was not compared with Flink"),
        ("DATE_FORMAT(CAST(name AS TIMESTAMP(3)), 'YYYY-ww')", "Spark ends the run"),
    ],
)
def test_what_is_not_known_to_be_alike_gets_a_check(parser: FlinkParser, flink: str, why: str) -> None:
    made = translated(parser.expression(flink), SCOPE, parser)
    assert any(one.why.startswith("CHECK") and why in one.why for one in made.remarks)


def test_comparisons_and_sums_of_all_kinds_of_numbers_were_evaluated(parser: FlinkParser) -> None:
    numbers, known = (Kind.WHOLE, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT), known_functions()
    operators = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/")
    assert [one for name in operators for pair in product(numbers, numbers)
            if (one := signature(name, pair)) not in known] == []  # fmt: skip
    fare = Scope({"fare": "fare"}, {"fare": flink_type("DOUBLE")}, "", "UTC")
    assert translated(parser.expression("fare > 0 AND fare BETWEEN 1 AND 5"), fare, parser).remarks == ()


def test_a_part_of_a_time_of_no_known_type_is_named(parser: FlinkParser) -> None:
    with pytest.raises(NoCounterpartError) as refused:
        translated(parser.expression("FLOOR(ts TO HOUR)"), SCOPE, parser)
    assert "FLOOR HOUR(WHOLE) was not compared with Flink" in refused.value.why


def test_without_a_zone_in_the_script_what_depends_on_it_gets_a_check(parser: FlinkParser) -> None:
    made = translated(parser.expression("HOUR(`at`)"), Scope(SCOPE.columns, SCOPE.types), parser)
    assert [one.why for one in made.remarks] == [
        "CHECK: Flink takes the session's time zone, which the script does not set; here it is UTC"
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", FlinkType(Kind.INSTANT)),
        ("INTEGER NOT NULL", FlinkType(Kind.WHOLE, narrower=(Kind.INT,))),
        ("ARRAY<DECIMAL(10, 2)>", FlinkType(Kind.ARRAY, {"": FlinkType(Kind.DECIMAL, digits=Digits(10, 2))})),
        ("MAP<STRING, ROW<a DATE>>", FlinkType(Kind.MAP, {"": FlinkType(Kind.ROW, {"a": FlinkType(Kind.DATE)})})),
    ],
)
def test_types_are_read(text: str, found: FlinkType) -> None:
    assert flink_type(text) == found


def test_numbers_have_the_widest_type_together() -> None:
    assert common([flink_type("INT"), flink_type("BIGINT"), flink_type("NULL")]) == flink_type("BIGINT")
    assert common([flink_type("INT"), flink_type("DOUBLE")]) == flink_type("DOUBLE")
    assert common([flink_type("INT"), flink_type("STRING")]).kind is Kind.UNKNOWN
