# ruff: noqa: E501 (a case stands on one line)
"""Emitted rows as jobs write them, read into one row for each key and window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import StringType

from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.eventtime.ranges import TimeRange
from tests.sampling import first_of

HOUR = 3_600_000
NOON = 1_357_041_600_000  # 2013-01-01T12:00:00Z
ALL = TimeRange(0, 2 * NOON)

YAML = """
name: p
history: {{kind: files, path: history, format: parquet, position: {{partition: p, offset: o, arrival: a}}}}
keys: {{carrier: key}}
event_time: {{expression: ts, unit: ms}}
watermark: {{generator: ascending}}
window: {{{window}}}
aggregates: {{n: count(*), total: sum(v)}}
live:
  source: {{kind: files, path: rows.json, format: json, schema: "{schema}"}}
  keys: {{carrier: key}}
  {live}
"""
TUMBLING = "type: tumbling, size: 1 h"


def read(
    spark, folder: Path, rows: list[dict], live: str, *, schema: str, window: str = TUMBLING, span: TimeRange = ALL
):
    (folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "p.yaml"
    path.write_text(YAML.format(live=live.replace("\n", "\n  "), schema=schema, window=window))
    pipeline = load_pipeline(path)
    found = EmittedRows(spark, pipeline, {"carrier": StringType()}).windows(span)
    return pipeline, found


def bounds(found) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in found.rows.select("window_start", "window_end").collect())


@pytest.mark.parametrize(
    ("row", "columns", "schema"),
    first_of([
        ({"s": NOON}, "start: s, unit: ms", "s BIGINT"),
        ({"s": NOON // 1000}, "start: s, unit: s", "s BIGINT"),
        ({"e": NOON + HOUR}, "end: e, unit: ms", "e BIGINT"),
        ({"e": NOON + HOUR - 1}, "end: e, unit: ms, inclusive_end: 1 ms", "e BIGINT"),
        ({"s": NOON // 1000, "e": (NOON + HOUR) // 1000 - 1}, "start: s, end: e, unit: s, inclusive_end: 1 s", "s BIGINT, e BIGINT"),
        ({"s": "2013-01-01T12:00:00Z"}, "start: s, unit: iso", "s STRING"),
        ({"s": "2013-01-01T07:00:00"}, "start: s, unit: iso, time_zone: America/New_York", "s STRING"),
        ({"s": "2013-01-01 13:00:00"}, "start: s, unit: iso, time_zone: Europe/Berlin", "s STRING"),
        ({"s": NOON + HOUR}, "start: s, unit: ms, time_zone: Europe/Berlin", "s BIGINT"),
        ({"s": "2013-01-01T12:00:00Z"}, "start: s", "s TIMESTAMP"),
    ], 4),
)  # fmt: skip
def test_window_bounds_are_read_as_the_job_writes_them(spark, tmp_path, row, columns, schema) -> None:
    live = f"window: {{{columns}}}\nvalues: {{n: c}}"
    _, found = read(spark, tmp_path, [row | {"key": "AA", "c": 3}], live, schema=f"key STRING, c BIGINT, {schema}")
    assert bounds(found) == [(NOON, NOON + HOUR)]
    assert found.values == ("n",)


def test_the_start_of_a_calendar_day_gives_its_end_also_when_the_clocks_change(spark, tmp_path) -> None:
    window = "type: tumbling, size: 1 day, time_zone: America/New_York"
    live = "window: {start: s, unit: iso, time_zone: America/New_York}\nvalues: {n: c}"
    rows = [{"key": "AA", "c": 1, "s": "2013-03-10 00:00:00"}]
    _, found = read(spark, tmp_path, rows, live, schema="key STRING, c BIGINT, s STRING", window=window)
    ((start, end),) = bounds(found)
    assert end - start == 23 * HOUR


def test_the_start_of_a_session_says_nothing_of_its_end(spark, tmp_path) -> None:
    live = "window: {start: s, unit: ms}\nvalues: {n: c}"
    with pytest.raises(DefinitionError, match=r"live.window.end: is missing: ends of session windows do not follow"):
        read(spark, tmp_path, [], live, schema="key STRING, c BIGINT, s BIGINT", window="type: session, gap: 5 min")


PANES = [
    {"key": "AA", "s": NOON, "c": 2, "pane": 0, "at": NOON + 1},
    {"key": "AA", "s": NOON, "c": 5, "pane": 2, "at": NOON + 3},
    {"key": "AA", "s": NOON, "c": 3, "pane": 1, "at": NOON + 2},
    {"key": None, "s": NOON, "c": 9, "pane": 0, "at": NOON + 1},
]
PANE_SCHEMA = "key STRING, s BIGINT, c BIGINT, pane INT, at BIGINT"
BY_START = "window: {start: s, unit: ms}\nvalues: {n: c}\n"


def latest(found) -> dict:
    rows = found.rows.select("carrier", "n__emitted", "emitted_rows", "ambiguous").collect()
    return {row[0]: tuple(row)[1:] for row in rows}


@pytest.mark.parametrize("order", ["pane: pane", "order: at", "emitted_at: at\nemitted_at_unit: ms"])
def test_of_several_panes_the_last_counts_and_a_null_key_is_a_key(spark, tmp_path, order) -> None:
    _, found = read(spark, tmp_path, PANES, BY_START + order, schema=PANE_SCHEMA)
    assert latest(found) == {"AA": (5, 3, False), None: (9, 1, False)}


def test_rows_that_nothing_orders_and_panes_that_are_there_twice_are_flagged(spark, tmp_path) -> None:
    _, found = read(spark, tmp_path, PANES, BY_START, schema=PANE_SCHEMA)
    assert latest(found)["AA"][1:] == (3, True)
    _, found = read(spark, tmp_path, [*PANES, PANES[2]], BY_START + "pane: pane", schema=PANE_SCHEMA)
    assert latest(found)["AA"] == (5, 4, True)


def test_a_changelog_is_applied_in_its_order(spark, tmp_path) -> None:
    rows = [
        {"key": "AA", "s": NOON, "c": 1, "op": "+I", "n": 1},
        {"key": "AA", "s": NOON, "c": 1, "op": "-U", "n": 2},
        {"key": "AA", "s": NOON, "c": 4, "op": "+U", "n": 3},
        {"key": "BB", "s": NOON, "c": 7, "op": "+I", "n": 4},
        {"key": "BB", "s": NOON, "c": 7, "op": "-D", "n": 5},
    ]
    live = BY_START + "mode: changelog\noperation: op\norder: n"
    _, found = read(spark, tmp_path, rows, live, schema="key STRING, s BIGINT, c BIGINT, op STRING, n INT")
    assert latest(found) == {"AA": (4, 2, False)}


def test_rows_outside_of_the_range_and_without_bounds_are_counted_apart(spark, tmp_path) -> None:
    rows = [{"key": "AA", "s": NOON, "c": 1}, {"key": "AA", "s": NOON - HOUR, "c": 1}, {"key": "AA", "s": None, "c": 1}]
    span = TimeRange(NOON, NOON + HOUR)
    schema = "key STRING, s BIGINT, c BIGINT"
    _, found = read(spark, tmp_path, rows, BY_START, schema=schema, span=span)
    assert bounds(found) == [(NOON, NOON + HOUR)]
    assert (found.unreadable, found.outside) == (1, 1)
    assert found.notes == (
        "1 emitted row was left out because it cannot be read, the first: no readable window bounds",
    )


TEXTS = "key STRING, s STRING, c STRING, pane STRING, at STRING, last STRING"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"c": "1x"}, "live.values.n: CAST(c AS BIGINT): the value '1x' of the type STRING cannot be cast to BIGINT"),
        ({"pane": "none"}, "live.pane: CAST(pane AS BIGINT): the value 'none' of the type"),
        ({"s": "1x"}, "no readable window bounds"),
        ({"at": "1x"}, ""),
        ({"last": '{"a": 7}'}, ""),
    ],
)  # fmt: skip
def test_a_row_on_which_an_expression_fails_is_left_out_and_told_and_without_evidence_it_counts(
    spark, tmp_path, wrong, why
) -> None:
    right = {"key": "AA", "s": str(NOON), "c": "3", "pane": "0", "at": str(NOON), "last": '{"0": 7}'}
    live = """\
window: {start: CAST(s AS BIGINT), unit: ms}
values: {n: CAST(c AS BIGINT)}
pane: pane
emitted_at: CAST(at AS BIGINT)
emitted_at_unit: ms
last_offsets: last"""
    _, found = read(spark, tmp_path, [right, {**right, "key": "BB", **wrong}], live, schema=TEXTS)
    expected = {"AA": (3, 1, False)} if why else {"AA": (3, 1, False), "BB": (3, 1, False)}
    assert (latest(found), found.unreadable) == (expected, 1 if why else 0)
    assert not why or why in found.notes[0]


@pytest.mark.parametrize(
    ("live", "error", "words"),
    [
        ("window: {start: nope, unit: ms}\nvalues: {n: c}", SourceError, "there is no column `nope`"),
        ("window: {start: s, unit: iso}\nvalues: {n: c}", DefinitionError, "live.window.start: is BIGINT, and unit `iso` reads text"),
        ("window: {start: s, unit: ms}\nvalues: {n: x}", SourceError, "there is no column `x`"),
        ("window: {start: s, unit: ms}", DefinitionError, "no aggregate of the definition is a column of the emitted windows"),
        ("window: {start: s, unit: ms}\nvalues: {n: c}\nlast_offsets: c", DefinitionError, "live.last_offsets: is BIGINT, not a map"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_field(spark, tmp_path, live, error, words) -> None:
    with pytest.raises(error) as refused:
        read(spark, tmp_path, [], live, schema="key STRING, s BIGINT, c BIGINT")
    assert words in str(refused.value)
