"""A record on which an expression fails goes to quarantine, with the expression and the reason; the others count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_jobs.errors import RewindowError
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.sessions import with_sessions_columns
from spark_jobs.sources import canonical, good, open_history, quarantined
from tests.sampling import first_of
from tests.sources.conftest import BASE, MakePipeline, position

SCHEMA = "p INT, o BIGINT, a BIGINT, t BIGINT, k STRING, v BIGINT, s STRING"


def read(spark, tmp_path: Path, pipeline: MakePipeline, rows: list[dict[str, Any]], **sections: Any):
    """The good records of JSON lines, and the reason of each of the others by its offset."""
    lines = [
        {"p": 0, "o": i, "a": BASE + i, "t": BASE + i, "k": "1", "v": 1, "s": "x"} | row for i, row in enumerate(rows)
    ]
    (tmp_path / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = {"partition": "p", "offset": "o", "arrival": "a"}
    definition = pipeline(
        tmp_path,
        **{
            "history": {"format": "json", "position": position(**names, arrival_unit="ms")},
            "value": {"format": "columns", "schema": SCHEMA},
            "keys": {"k": "k"},
            "event_time": {"expression": "t", "unit": "ms"},
            **sections,
        },
    )
    frame = canonical(open_history(spark, definition), definition)
    reasons = {row.offset: row.reason for row in quarantined(frame).collect()}
    return definition, good(frame), reasons


CAST = "the value 'x' of the type STRING cannot be cast to INT"


def _time(expression: str) -> dict[str, str]:
    return {"expression": expression, "unit": "timestamp"}


KINDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"keys": {"k": "CAST(k AS INT)"}}, {"k": "x"}, f"key `k`: CAST(k AS INT): {CAST}"),
    ({"keys": {"k": "10 div v"}}, {"v": 0}, "key `k`: 10 div v: division by zero"),
    ({"keys": {"k": "v + 9223372036854775800"}}, {"v": 99}, "key `k`: v + 9223372036854775800: overflow"),
    ({"keys": {"k": "element_at(split(s, ','), CAST(v AS INT))"}}, {"v": 5}, "key `k`: element_at"),
    ({"keys": {"k": "upper(k)", "n2": "CAST(k AS INT) % 2", "m": "CAST(k AS INT) + 1"}}, {"k": "x"}, "key `n2`"),
    ({"event_time": {"expression": "CAST(k AS BIGINT) * 1000", "unit": "ms"}}, {"k": "x"}, "event_time: CAST(k"),
    ({"filter": {"before_watermark": "CAST(k AS INT) > 0"}}, {"k": "x"}, "filter.before_watermark: CAST(k AS INT)"),
    ({"filter": {"after_watermark": "CAST(k AS INT) > 0"}}, {"k": "x"}, "filter.after_watermark: CAST(k AS INT)"),
    ({"aggregates": {"n": "sum(CAST(k AS INT)) / count(*)"}}, {"k": "x"}, f"aggregate `n`: CAST(k AS INT): {CAST}"),
    ({"aggregates": {"n": "sum(v) FILTER (WHERE CAST(k AS INT) > 0)"}}, {"k": "x"}, "aggregate `n`: CAST(k AS INT)"),
    ({"event_time": _time("CAST(coalesce(nullif(s, 'x'), '2024-07-01T10:00:00Z') AS TIMESTAMP)")},
     {"s": "soon"}, "event_time: CAST("),
    ({"event_time": _time("to_timestamp(s)")}, {"s": "T10:00"}, "to_timestamp(s): text without a date"),
    ({"event_time": _time("to_timestamp(s)")}, {"s": "2024-07-01 10:00:00 BST"}, "or a clear zone is no time"),
    ({"event_time": _time("TRY_CAST(s AS TIMESTAMP)")}, {"s": "10:00"}, "or a clear zone is no time"),
    ({"event_time": _time("coalesce(try_to_timestamp(s), timestamp_millis(t))")}, {"s": "T10:00"}, "or a clear zone"),
    ({"event_time": _time("CASE WHEN v = 1 THEN to_timestamp(s) ELSE timestamp_millis(t) END")},
     {"s": "2024-07-01 10:00:00 IST"}, "or a clear zone is no time"),
    ({"event_time": _time("to_utc_timestamp(timestamp_millis(t), if(v = 1, 'UTC', s))")}, {"s": "IST", "v": 2},
     "or a clear zone"),
    ({"keys": {"k": "hour(nullif(TRY_CAST(s AS TIMESTAMP), TIMESTAMP '1970-01-01'))"}}, {"s": "10:00"}, "or a clear"),
    ({"keys": {"k": "size(transform(split(s, ','), x -> to_timestamp(x)))"}}, {"s": "2024-07-01,10:00"}, "or a clear"),
    ({"keys": {"k": "exists(split(s, ','), x -> TRY_CAST(x AS TIMESTAMP) > timestamp_millis(t))"}},
     {"s": "2024-07-01 10:00:00 IST"}, "or a clear zone is no time"),
    ({"event_time": _time("aggregate(split(s, ','), TIMESTAMP '1970-01-01', (l, x) -> greatest(l, to_timestamp(x)))")},
     {"s": "2024-07-01 10:00:00 CST"}, "or a clear zone is no time"),
    ({"keys": {"k": "transform(array(s), x -> to_utc_timestamp(timestamp_millis(t), if(x like '2%', 'UTC', x)))[0]"}},
     {"s": "BST"}, "or a clear zone is no time"),
    ({"keys": {"k": "transform(array(s), x -> to_date(x))[0]"}}, {"s": "today"}, "key `k`: transform(array(s)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sections", "bad", "reason"), first_of(KINDS, 10), ids=lambda one: one if isinstance(one, str) else ""
)
def test_one_bad_value_costs_one_record(
    spark, tmp_path: Path, pipeline: MakePipeline, sections: dict[str, Any], bad: dict[str, Any], reason: str
) -> None:
    rows = [{"s": "2024-07-01T10:00:00Z"}, {"s": "2024-07-01 10:00:00"} | bad, {"s": "2024-07-01"}]
    if "element_at" in str(sections):
        rows[0]["s"] = rows[2]["s"] = "x"
    if "BIGINT" in str(sections):
        rows[0]["k"] = rows[2]["k"] = str(BASE // 1000)
    defined, kept, reasons = read(spark, tmp_path, pipeline, rows, **sections)
    assert list(reasons) == [1], reasons
    assert reason in reasons[1]
    values = [F.expr(text).alias(name) for name, text in defined.aggregates.items()]
    assert kept.groupBy(*defined.keys).agg(*values, F.count("*").alias("rows")).agg(F.sum("rows")).collect()[0][0] == 2


PATTERNS: list[tuple[str, dict[str, Any]]] = [
    ("regexp_replace(s, k, '')", {"k": "("}),
    ("s RLIKE k", {"k": "["}),
    ("s LIKE k", {"k": "a\\"}),
    ("exists(split(k, ','), x -> s RLIKE x)", {"k": "a,("}),
    ("regexp_replace(s, 'q', k)", {"s": "q", "k": "$1"}),
    ("regexp_replace(s, 'q', '$1')", {"s": "q"}),
]


@pytest.mark.parametrize(("expression", "bad"), PATTERNS)
def test_a_bad_pattern_in_a_record_costs_that_record(
    spark, tmp_path: Path, pipeline: MakePipeline, expression: str, bad: dict[str, Any]
) -> None:
    _, kept, reasons = read(spark, tmp_path, pipeline, [{}, bad, {}], keys={"k": expression})
    assert list(reasons) == [1] and reasons[1].startswith("key `k`: ")
    assert kept.count() == 2


def test_what_is_not_evaluated_cannot_fail(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    sections = {
        "keys": {"k": "CASE WHEN k RLIKE '^[0-9]+$' THEN CAST(k AS INT) END"},
        "filter": {"after_watermark": "v > 0"},
        "aggregates": {"n": "sum(10 div v)", "m": "sum(CAST(s AS INT)) FILTER (WHERE s = '5')"},
    }
    _, kept, reasons = read(spark, tmp_path, pipeline, [{"k": "x"}, {"v": 0}, {"s": "5"}], **sections)
    assert (reasons, kept.count()) == ({}, 3)


def test_a_session_gap_must_be_above_zero(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    window = {"type": "session", "gap_expression": "v * 1000"}
    rows = [{"v": 5}, {"v": None}, {"v": 0}, {"v": -1}, {"v": 9223372036854775807}]
    defined, kept, reasons = read(spark, tmp_path, pipeline, rows, window=window)
    assert reasons == {
        1: "the session gap is null",
        2: "the session gap is not above 0: 0",
        3: "the session gap is not above 0: -1000",
        4: "window.gap_expression: v * 1000: overflow for 9223372036854775807, 1000",
    }
    ends = with_sessions_columns(kept, spec_of(defined, [0])).selectExpr("rw_end - rw_ts").collect()
    assert [row[0] for row in ends] == [5000]


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"keys": {"k": "NULL"}}, "is VOID, which a table cannot hold"),
        ({"keys": {"k": "timestamp_millis(t) - timestamp_millis(a)"}}, "INTERVAL DAY TO SECOND, which"),
        ({"keys": {"k": "k COLLATE UNICODE_CI"}}, "COLLATE"),
        ({"aggregates": {"n": "max(NULL)"}}, "is VOID"),
        ({"aggregates": {"n": "max(struct(timestamp_millis(t) - timestamp_millis(a) AS d))"}}, "INTERVAL"),
    ],
)
def test_a_type_that_no_table_holds_is_refused_by_name(
    spark, tmp_path: Path, pipeline: MakePipeline, sections: dict[str, Any], what: str
) -> None:
    with pytest.raises(RewindowError) as refused:
        read(spark, tmp_path, pipeline, [{}], **sections)
    assert what in str(refused.value)
    assert f"{next(iter(sections))}.{next(iter(next(iter(sections.values()))))}" in str(refused.value)
