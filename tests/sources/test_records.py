# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.sources import canonical, cut_at, good, open_history, quarantined
from spark_jobs.sources.records.canonical import STANDS_FOR_NONE
from spark_jobs.spark.gateway import query_execution
from tests.sampling import first_of
from tests.sources.conftest import BASE, MakePipeline, payload, position, records, write_log

ABSURD = "event time out of [1970-01-01T00:00:00Z, 2100-01-01T00:00:00Z)"


def opened(spark, pipeline) -> DataFrame:
    return canonical(open_history(spark, pipeline), pipeline)


def reasons(frame: DataFrame) -> dict[int, str]:
    return {row.offset: row.reason for row in quarantined(frame).collect()}


def test_a_record_becomes_its_columns_its_fields_its_keys_and_its_position(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", [(1, 5, 20, "AA", payload(7, distance=300))])
    frame = opened(spark, pipeline(tmp_path))
    row = good(frame).first().asDict()
    assert (row["rw_partition"], row["rw_offset"], row["rw_arrival"], row["rw_event_time"]) == (
        1,
        5,
        BASE + 20,
        BASE + 7,
    )
    assert (row["carrier"], row["distance"], row["key"]) == ("AA", 300, "AA")
    types = dict(good(frame).dtypes)
    assert [types[name] for name in ("rw_partition", "rw_offset", "rw_arrival", "rw_event_time")] == [
        "int", "bigint", "bigint", "bigint",
    ]  # fmt: skip
    assert not {"rw_reason", "rw_raw", "rw_marker", "rw_stream", "rw_sequence"} & types.keys()
    assert {"rw_reason", "rw_raw"} <= set(frame.columns)


MALFORMED = {
    0: ("{", "not valid JSON"),
    1: ("nonsense", "not valid JSON"),
    2: ('{"sched_dep": "2013-01-01T10:00:00Z", "distance": 12', "not valid JSON"),
    3: ('[{"sched_dep": "2013-01-01T10:00:00Z"}]', "not a JSON object"),
    4: ('"text"', "not a JSON object"),
    5: ("17", "not a JSON object"),
    6: ("", "not valid JSON"),
    7: (None, "no value"),
    8: (payload(0, distance="far"), "wrong type for field distance"),
    9: (payload(0, distance="1.5"), "wrong type for field distance"),
    10: (payload(0, distance={"km": 1}), "wrong type for field distance"),
    11: ('{"distance": 1}', "missing event time"),
    12: ('{"sched_dep": null}', "missing event time"),
    13: ('{"sched_dep": " "}', "missing event time"),
    14: ('{"sched_dep": "2013-01-01T10:00:00"}', "event time without zone: 2013-01-01T10:00:00"),
    15: ('{"sched_dep": "2013-01-01"}', "event time without zone: 2013-01-01"),
    16: ('{"sched_dep": "soon"}', "event time is not ISO-8601: soon"),
    17: ('{"sched_dep": "2013-02-30T10:00:00Z"}', "event time is not ISO-8601: 2013-02-30T10:00:00Z"),
    18: ('{"sched_dep": "1969-12-31T23:59:59.999Z"}', ABSURD),
    19: ('{"sched_dep": "2100-01-01T00:00:00Z"}', ABSURD),
    20: ('{"sched_dep": "9999-12-31T23:59:59Z"}', STANDS_FOR_NONE),
    21: ("null", "not a JSON object"),
    22: (payload(0) + " trailing", "not valid JSON"),
    23: (payload(0) + payload(1), "not valid JSON"),
    24: (payload(0) + "," + payload(1), "not valid JSON"),
}


def test_what_cannot_be_used_keeps_its_position_its_text_and_a_reason(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    rows = [(0, offset, offset, "AA", text) for offset, (text, _) in MALFORMED.items()]
    write_log(tmp_path / "a.parquet", [*rows, *records((0, 100, 100))])
    frame = opened(spark, pipeline(tmp_path, event_time={"missing": "quarantine"}))
    found = {row.offset: (row.raw, row.reason) for row in quarantined(frame).collect()}
    assert found == MALFORMED
    assert quarantined(frame).where("partition = 0 AND arrival IS NOT NULL").count() == len(MALFORMED)
    assert [row.rw_offset for row in good(frame).collect()] == [100]


@pytest.mark.parametrize(
    "text",
    first_of(
        [
            payload(0, legs=[{"a": 1}, {"a": 2}], more={"x": {}}, text="} { }, {"),
            payload(0, text="}\n{"),
            payload(0) + " \n",
            "  " + payload(0),
            payload(0, unknown=[1, "two", None]),
        ],
        2,
    ),
)
def test_one_json_object_is_good_whatever_else_it_holds(
    spark, tmp_path: Path, pipeline: MakePipeline, text: str
) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 0, "AA", text)])
    assert [row.rw_reason for row in opened(spark, pipeline(tmp_path)).collect()] == [None]


def test_the_reasons_do_not_depend_on_which_columns_are_read(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    rows = [(0, 0, 0, "AA", payload(0, distance="far")), (0, 1, 1, "AA", payload(1))]
    write_log(tmp_path / "a.parquet", rows)
    frame = opened(spark, pipeline(tmp_path))
    assert good(frame).count() == good(frame).select("rw_event_time").toArrow().num_rows == 1
    assert frame.select(F.col("rw_reason").isNull().alias("good")).where("good").count() == 1


INSTANTS = {
    "2013-01-01T10:00:00Z": 0,
    "2013-01-01T10:00:00.001Z": 1,
    "2013-01-01T10:00:00.0019999Z": 1,
    "2013-01-01T10:00:00.123456789Z": 123,
    "2013-01-01T11:00:00+01:00": 0,
    "2013-01-01T05:00:00-05:00": 0,
    "2013-01-01T15:30:00+05:30": 0,
    "2013-01-01T11:00:00+0100": 0,
    "2013-01-01T11:00:00+01": 0,
    "2013-01-01 10:00:00Z": 0,
    "2013-01-01 10:00:00 UTC": 0,
    "2013-01-01 11:00:00 Europe/Berlin": 0,
    "2013-01-01T10:00Z": 0,
    "2013-01-01T11:00+01:00[Europe/Berlin]": 0,
    "2013-01-01T11:00:00.5+01:00[Europe/Berlin]": 500,
    " 2013-01-01T10:00:00Z ": 0,
}
"""ISO text, and its ms after `BASE`."""


def test_iso_text_with_a_zone_is_an_instant(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    rows = [(0, offset, 0, "AA", json.dumps({"sched_dep": text})) for offset, text in enumerate(INSTANTS)]
    write_log(tmp_path / "a.parquet", rows)
    found = opened(spark, pipeline(tmp_path)).orderBy("rw_offset").collect()
    expected = [(text, None, BASE + milliseconds) for text, milliseconds in INSTANTS.items()]
    assert [(text, row.rw_reason, row.rw_event_time) for text, row in zip(INSTANTS, found, strict=True)] == expected


def _typed(spark, pipeline: MakePipeline, path: Path, unit: str, column: pa.Array, **event_time) -> DataFrame:
    n = len(column)
    table = pa.table({"partition": pa.array([0] * n), "offset": pa.array(range(n)), "arrival": pa.array([BASE] * n)})
    pq.write_table(table.append_column("t", column), path / "a.parquet")
    definition = pipeline(
        path,
        history={"position": position(arrival_unit="ms")},
        value={"format": "columns"},
        keys={},
        event_time={"expression": "t", "unit": unit, **event_time},
    )
    return opened(spark, definition).orderBy("rw_offset")


@pytest.mark.parametrize(
    ("unit", "column", "expected"),
    first_of(
        [
            ("ms", pa.array([0, 1, BASE]), [0, 1, BASE]),
            ("s", pa.array([1_357_034_400.123, 0.0005]), [BASE + 123, 0]),
            ("us", pa.array([BASE * 1000 + 999, 999]), [BASE, 0]),
            ("timestamp", pa.array([BASE * 1000 + 999], pa.timestamp("us", "UTC")), [BASE]),
            ("s", pa.array([1_357_034_400, 0]), [BASE, 0]),
            ("s", pa.array([1_357_034_400], pa.int32()), [BASE]),
            ("s", pa.array([Decimal("1357034400.1239")]), [BASE + 123]),
            ("s", pa.array(["1357034400", "1357034400.5"]), [BASE, BASE + 500]),
            ("us", pa.array([float(BASE * 1000 + 1500)]), [BASE + 1]),
            ("ms", pa.array([BASE + 0.9]), [BASE]),
            ("timestamp", pa.array([BASE + 1], pa.timestamp("ms", "UTC")), [BASE + 1]),
        ],
        4,
    ),
)
def test_event_times_in_every_unit_are_epoch_milliseconds(
    spark, tmp_path: Path, pipeline: MakePipeline, unit: str, column: pa.Array, expected: list[int]
) -> None:
    frame = _typed(spark, pipeline, tmp_path, unit, column)
    assert [(row.rw_reason, row.rw_event_time) for row in frame.collect()] == [(None, ms) for ms in expected]


@pytest.mark.parametrize(
    ("unit", "column", "expected"),
    [
        ("us", pa.array([-1, -1000, -1001]), [-1, -1, -2]),
        ("s", pa.array([-0.0001]), [-1]),
        ("timestamp", pa.array([-1], pa.timestamp("us", "UTC")), [-1]),
    ],
)
def test_before_1970_parts_of_a_millisecond_are_cut_off_towards_the_past(
    spark, tmp_path: Path, pipeline: MakePipeline, unit: str, column: pa.Array, expected: list[int]
) -> None:
    frame = _typed(spark, pipeline, tmp_path, unit, column, earliest="1900-01-01T00:00:00Z")
    assert [(row.rw_reason, row.rw_event_time) for row in frame.collect()] == [(None, ms) for ms in expected]


@pytest.mark.parametrize(
    ("unit", "column", "reason"),
    first_of(
        [
            ("s", pa.array([2**63 - 1]), "event time is out of any range"),
            ("s", pa.array([1e30]), "event time is out of any range"),
            ("s", pa.array([float("nan")]), "event time is out of any range"),
            ("ms", pa.array(["soon"]), "event time is not a number"),
            ("ms", pa.array([-1]), ABSURD),
            ("ms", pa.array([4_102_444_800_000]), ABSURD),
            ("us", pa.array([2**63 - 1]), ABSURD),
            ("s", pa.array([BASE]), ABSURD),
        ],
        3,
    ),
)
def test_absurd_numbers_go_to_quarantine_and_never_fail_the_query(
    spark, tmp_path: Path, pipeline: MakePipeline, unit: str, column: pa.Array, reason: str
) -> None:
    frame = _typed(spark, pipeline, tmp_path, unit, column)
    assert [row.rw_reason for row in frame.collect()] == [reason]
    raw = json.loads(frame.first().rw_raw)
    assert raw.keys() == {"partition", "offset", "arrival", "t"}


@pytest.mark.parametrize(
    ("unit", "column", "message"),
    first_of(
        [
            (
                "timestamp",
                pa.array([BASE], pa.timestamp("ms")),
                "is TIMESTAMP_NTZ, a time without zone; write CAST(... AS",
            ),
            ("timestamp", pa.array([15000], pa.date32()), "is DATE, a time without zone; write CAST(... AS TIMESTAMP)"),
            ("timestamp", pa.array(["x"]), "is STRING, not a timestamp; write `unit: iso` for ISO-8601 text"),
            ("timestamp", pa.array([1]), "is BIGINT, not a timestamp; write `unit: s`, `ms` or `us`"),
            ("iso", pa.array([1]), "is BIGINT, and unit `iso` reads text; write `unit: s`, `ms` or `us`"),
            ("ms", pa.array([True]), "is BOOLEAN, not a number of ms; write an expression that gives a number"),
        ],
        3,
    ),
)
def test_a_type_that_does_not_fit_the_unit_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline, unit: str, column: pa.Array, message: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        _typed(spark, pipeline, tmp_path, unit, column)
    assert str(refused.value).startswith(f"p:1: event_time.expression: {message}")


@pytest.mark.parametrize(
    ("unit", "arrivals", "expected"),
    [
        ("s", pa.array([1, 2]), [1000, 2000]),
        ("ms", pa.array([1, 2]), [1, 2]),
        ("us", pa.array([1999, 2000]), [1, 2]),
        ("timestamp", pa.array([1, 2], pa.timestamp("ms", "UTC")), [1, 2]),
    ],
)
def test_arrivals_in_every_unit_are_epoch_milliseconds(
    spark, tmp_path: Path, pipeline: MakePipeline, unit: str, arrivals: pa.Array, expected: list[int]
) -> None:
    columns = {"partition": pa.array([0, 0]), "offset": pa.array([0, 1]), "arrival": arrivals, "t": pa.array([5, 6])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    definition = pipeline(
        tmp_path, history={"position": position(arrival_unit=unit)}, value={"format": "columns"}, keys={},
        event_time={"expression": "t", "unit": "ms"},
    )  # fmt: skip
    frame = opened(spark, definition).orderBy("rw_offset")
    assert [row.rw_arrival for row in frame.collect()] == expected


def test_what_came_to_a_partition_before_the_job_discovered_it_arrives_then(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 20), (1, 0, 10), (1, 1, 50), (1, 2, 90)))
    watermark = {"generator": "ascending", "partitions": 2, "discovered": {1: BASE + 50}}
    frame = good(opened(spark, pipeline(tmp_path, watermark=watermark)))
    arrivals = {(row.rw_partition, row.rw_offset): row.rw_arrival - BASE for row in frame.collect()}
    assert arrivals == {(0, 0): 20, (1, 0): 50, (1, 1): 50, (1, 2): 90}


@pytest.mark.parametrize(("policy", "left"), [("fail", {0: None, 1: None}), ("drop", {1: None}),
                                              ("quarantine", {0: "missing event time", 1: None})])  # fmt: skip
def test_a_record_without_event_time_fails_the_run_is_dropped_or_put_aside(
    spark, tmp_path: Path, pipeline: MakePipeline, policy: str, left: dict
) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 0, "AA", '{"distance": 1}'), *records((0, 1, 1))])
    frame = opened(spark, pipeline(tmp_path, event_time={"missing": policy}))
    assert {row.rw_offset: row.rw_reason for row in frame.collect()} == left
    if policy == "fail":
        assert good(frame).where("rw_event_time IS NULL").count() == 1


def test_dropping_records_without_event_time_keeps_the_malformed_ones(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 0, "AA", "{"), (0, 1, 1, "AA", "{}"), *records((0, 2, 2))])
    assert reasons(opened(spark, pipeline(tmp_path, event_time={"missing": "drop"}))) == {0: "not valid JSON"}


def test_the_filter_removes_what_it_is_not_true_for_and_keeps_what_is_malformed(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    rows = [
        (0, 0, 0, "AA", payload(0, distance=50)),
        (0, 1, 1, "AA", payload(1, distance=None)),
        (0, 2, 2, "AA", payload(2, distance=500)),
        (0, 3, 3, "AA", "{"),
        (0, 4, 4, "BB", "{"),
        (0, 5, 5, "AA", None),
    ]
    write_log(tmp_path / "a.parquet", rows)
    frame = opened(spark, pipeline(tmp_path, filter={"before_watermark": "distance > 100 AND key = 'AA'"}))
    assert {row.rw_offset: row.rw_reason for row in frame.collect()} == {2: None, 3: "not valid JSON"}


def test_the_filter_sees_the_keys(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 0, "AA", payload(0)), (0, 1, 1, "BB", payload(1))])
    frame = opened(spark, pipeline(tmp_path, filter={"before_watermark": "(carrier = 'BB') AND (distance > 0)"}))
    assert [row.rw_offset for row in frame.collect()] == [1]


def test_a_record_without_a_position_goes_to_quarantine(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    table = pq.read_table(write_log(tmp_path / "a.parquet", records((0, 0, 0), (0, 1, 1), (0, 2, 2), (-1, 3, 3))))
    offsets = pa.array([None, 1, 2, 3], pa.int64())
    arrivals = pa.array([BASE, None, BASE, BASE], pa.timestamp("ms", "UTC"))
    table = table.set_column(1, "offset", offsets).set_column(2, "arrival", arrivals)
    pq.write_table(table, tmp_path / "a.parquet")
    frame = opened(spark, pipeline(tmp_path))
    assert reasons(frame) == {None: "no position", 1: "no position", 3: "no position"}
    assert reasons(cut_at(frame, {0: 2})) == {None: "no position", 1: "no position", 3: "no position"}
    assert good(cut_at(frame, {0: 2})).count() == 0


def test_a_history_without_positions_has_null_ones_and_good_records(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    frame = opened(spark, pipeline(tmp_path, history={"position": {}}))
    row = good(frame).first()
    assert (row.rw_partition, row.rw_offset, row.rw_arrival) == (None, None, None)


def test_the_as_of_vector_cuts_each_partition_below_its_end(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records(*((p, o, o) for p in (0, 1, 2) for o in range(3))))
    frame = opened(spark, pipeline(tmp_path))
    left = cut_at(frame, {0: 2, 1: 0}).collect()
    assert sorted((row.rw_partition, row.rw_offset) for row in left) == [(0, 0), (0, 1)]
    assert cut_at(frame, {}).count() == 9


def test_markers_streams_and_sequences_are_there_where_the_definition_has_them(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 7, "AA", payload(0)), (0, 1, 8, "AA", payload(1, distance=None))])
    punctuated = pipeline(
        tmp_path,
        history={"position": position(sequence="offset * 10")},
        watermark={"generator": "punctuated", "lag": "0", "marker": "distance > 1"},
    )
    rows = good(opened(spark, punctuated)).orderBy("rw_offset").collect()
    assert [(row.rw_marker, row.rw_sequence) for row in rows] == [(True, 0), (False, 10)]
    interleaved = pipeline(tmp_path, watermark={"generator": "interleaved", "bound": "1 s", "stream": "distance"})
    rows = good(opened(spark, interleaved)).orderBy("rw_offset").collect()
    assert [row.rw_stream for row in rows] == ["100", None]


def test_fields_hide_columns_and_keys_hide_both_but_the_position_is_the_historys(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", [(0, 5, 0, "AA", payload(0, offset=77, key="BB"))])
    value = {"format": "json", "column": "value", "schema": "sched_dep STRING, offset INT, key STRING"}
    row = good(opened(spark, pipeline(tmp_path, value=value, keys={"KEY": "concat(key, '!')"}))).first()
    assert (row.rw_offset, row.offset, row.KEY) == (5, 77, "BB!")


def test_values_in_bytes_are_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    table = pq.read_table(write_log(tmp_path / "a.parquet", records((0, 0, 0))))
    table = table.set_column(4, "value", table.column("value").cast(pa.binary()))
    pq.write_table(table, tmp_path / "a.parquet")
    assert good(opened(spark, pipeline(tmp_path))).first().distance == 100


def test_csv_values_are_decoded_in_the_order_of_the_schema(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    texts = ["2013-01-01T10:00:00Z,7", '"2013-01-01T10:00:00Z",8', "2013-01-01T10:00:00Z,far", "2013-01-01T10:00:00Z",
             "a,b,c", None, ",5"]  # fmt: skip
    write_log(tmp_path / "a.parquet", [(0, offset, offset, "AA", text) for offset, text in enumerate(texts)])
    value = {"format": "csv", "column": "value", "schema": "sched_dep STRING, distance BIGINT"}
    frame = opened(spark, pipeline(tmp_path, value=value, event_time={"missing": "quarantine"}))
    assert sorted(row.distance for row in good(frame).collect()) == [7, 8]
    assert reasons(frame) == {
        2: "wrong type for field distance",
        3: "not valid CSV: 2 columns are expected",
        4: "not valid CSV: 2 columns are expected",
        5: "no value",
        6: "missing event time",
    }


def test_an_unknown_column_is_a_source_error_and_a_wrong_expression_a_definition_error(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    with pytest.raises(
        SourceError, match=r"there is no column `sched_depp` \(p, event_time.expression\). Did you mean"
    ):
        opened(spark, pipeline(tmp_path, event_time={"expression": "sched_depp"}))
    with pytest.raises(DefinitionError, match=r"keys\.carrier: not a Spark SQL expression"):
        opened(spark, pipeline(tmp_path, keys={"carrier": "upper(key"}))
    with pytest.raises(DefinitionError, match=r"keys\.carrier: must give one value for each record"):
        opened(spark, pipeline(tmp_path, keys={"carrier": "max(key)"}))
    with pytest.raises(DefinitionError, match="before_watermark: is BIGINT, not a condition"):
        opened(spark, pipeline(tmp_path, filter={"before_watermark": "distance"}))


def test_an_aggregate_whose_value_depends_on_the_order_of_reading_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    for text in ("first(distance)", "max_by(carrier, distance)", "sum(distance) + any_value(distance)"):
        with pytest.raises(DefinitionError, match="depends on the order"):
            opened(spark, pipeline(tmp_path, aggregates={"n": text}))


def test_no_python_worker_makes_canonical_records(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    plan = query_execution(opened(spark, pipeline(tmp_path))).executedPlan().toString()
    assert "Python" not in plan and "Arrow" not in plan


def test_a_text_is_decoded_once_however_often_its_fields_are_used(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    frame = good(opened(spark, pipeline(tmp_path, filter={"before_watermark": "distance > 0"})))
    plan = query_execution(frame.groupBy("carrier").agg(F.sum("distance"), F.max("rw_event_time"))).optimizedPlan()
    # The second one is in a branch: it reads what the first one could not. Those of lists tell why text is not read.
    assert plan.toString().count("from_json(StructField") == 2


def test_only_the_columns_that_are_used_are_read(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    frame = _typed(spark, pipeline, tmp_path, "timestamp", pa.array([BASE], pa.timestamp("ms", "UTC")))
    plan = query_execution(good(frame).groupBy().max("rw_event_time")).executedPlan().toString()
    assert "ReadSchema: struct<partition:bigint,offset:bigint,arrival:bigint,t:timestamp>" in plan


def test_a_quarantined_record_says_when_it_arrived(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", [(2, 9, 1500, "AA", "{")])
    row = quarantined(opened(spark, pipeline(tmp_path))).selectExpr("*", "unix_millis(arrival) ms").first()
    assert (row.partition, row.offset, row.ms, row.raw) == (2, 9, BASE + 1500, "{")
