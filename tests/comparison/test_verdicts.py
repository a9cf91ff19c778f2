"""When two values count as equal, and one verdict of each kind, from a log and rows written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.cli.comparison import exit_code
from spark_jobs.comparison.compare import run_compare
from spark_jobs.comparison.verdicts import same
from spark_jobs.definition import load_pipeline
from spark_jobs.definition.live import Tolerance
from spark_jobs.runs.work.progress import NoProgress

NAN, INF = "double('NaN')", "double('Infinity')"


@pytest.mark.parametrize(
    ("left", "right", "tolerance", "expected"),
    [
        # without a tolerance: equal or not
        ("CAST(NULL AS INT)", "CAST(NULL AS BIGINT)", {}, True),
        ("1L", "CAST(NULL AS BIGINT)", {}, False),
        (NAN, NAN, {}, True),
        (NAN, "1D", {}, False),
        ("1.50BD", "1.5D", {}, True),
        ("1.50BD", "1.500BD", {}, True),
        ("3", "3L", {}, True),
        ("'7'", "7L", {}, True),
        ("'x'", "7L", {}, False),
        # what the other type cannot hold is no null
        ("'x'", "CAST(NULL AS BIGINT)", {}, False),
        ("CAST(NULL AS STRING)", "CAST(NULL AS BIGINT)", {}, True),
        ("array('7', 'x')", "array(7L, NULL)", {}, False),
        ("array('7', NULL)", "array(7L, NULL)", {}, True),
        ("0D", "-0.0D", {}, True),
        # the edge belongs to the tolerance
        ("100L", "101L", {"absolute": 1}, True),
        ("100L", "102L", {"absolute": 1}, False),
        ("1.00BD", "1.01BD", {"absolute": 0.01}, True),
        ("1.00BD", "1.0101BD", {"absolute": 0.01}, False),
        ("1.00D", "1.01D", {"absolute": 0.01}, True),
        ("1.00D", "1.0100001D", {"absolute": 0.01}, False),
        ("1.00BD", "1.01D", {"absolute": 0.01}, True),
        ("71L", "100L", {"relative": 0.29}, True),
        ("70L", "100L", {"relative": 0.29}, False),
        ("0.71D", "1.00D", {"relative": 0.29}, True),
        ("-99L", "-100L", {"relative": 0.01}, True),
        ("-1L", "1L", {"relative": 1}, False),
        ("0L", "5L", {"relative": 1}, True),
        # either bound will do
        ("0.000BD", "0.004BD", {"absolute": 0.005, "relative": 1e-9}, True),
        ("1000000L", "1000001L", {"absolute": 0.5, "relative": 1e-6}, True),
        # whole numbers and decimals exactly, also where a double has no place for the difference
        ("9007199254740993L", "9007199254740992L", {"absolute": 0.5}, False),
        ("9223372036854775807L", "-9223372036854775808L", {"absolute": 1}, False),
        ("99999999999999999999999999999999999999BD", "1.000000000000000001BD", {"absolute": 1}, False),
        # nothing bridges a number and what is none
        ("CAST(NULL AS BIGINT)", "0L", {"absolute": 1e9}, False),
        ("CAST(NULL AS DOUBLE)", "CAST(NULL AS DOUBLE)", {"absolute": 1}, True),
        (NAN, NAN, {"relative": 0.5}, True),
        (NAN, "1D", {"absolute": 1}, False),
        (NAN, "1D", {"relative": 0.5}, False),
        (INF, INF, {"relative": 0.5}, True),
        (INF, "1D", {"relative": 0.5}, False),
        (INF, "-" + INF, {"absolute": 1, "relative": 1}, False),
        # a tolerance says nothing of text
        ("'1'", "'2'", {"absolute": 5}, False),
    ],
)  # fmt: skip
def test_values_are_equal_up_to_the_edge_of_their_tolerance(spark, left, right, tolerance, expected) -> None:
    frame = spark.sql(f"SELECT {left} AS l, {right} AS r")
    types = [field.dataType for field in frame.schema]
    for a, b, a_type, b_type in (("l", "r", *types), ("r", "l", *reversed(types))):
        if types[0].simpleString() == "string" and types[1].simpleString() != "string" and a == "r":
            continue  # the emitted side is cast to the replay's type, not the other way
        equal = same(F.col(a), F.col(b), a_type, b_type, Tolerance(**tolerance))
        assert frame.select(equal).collect()[0][0] is expected


MINUTE = 60_000
T0 = 1_600_000_020_000

YAML = """
name: by_hand
history:
  kind: files
  path: log.json
  format: json
  position: {partition: p, offset: o, arrival: a, arrival_unit: ms}
value: {schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v DECIMAL(10,2)"}
keys: {k: k}
event_time: {expression: t, unit: ms}
watermark: {generator: ascending, emission: per_event}
window: {type: tumbling, size: 1 min}
aggregates: {n: count(*), total: sum(v)}
end_of_input: freeze
live:
  source: {kind: files, path: rows.json, format: json, schema: "k STRING, s BIGINT, n BIGINT, total DECIMAL(20,2)"}
  window: {start: s, unit: ms}
  tolerance: {total: {absolute: 0.01}}
"""

LOG = [  # key, event time in seconds after T0, value; one a second
    ("a", 0, 1), ("a", 10, 2), ("b", 20, 5), ("c", 30, 7), ("d", 35, 1), ("g", 40, 1),
    ("a", 61, 1),  # closes the first minute
    ("b", 5, 9), ("e", 6, 1),  # late
    ("a", 125, 1), ("h", 130, 1),  # closes the second, opens the third
]  # fmt: skip


def written(folder: Path, rows: list[tuple]) -> Path:
    log = (
        {"p": 0, "o": number, "a": T0 + 1000 * number, "k": key, "t": T0 + 1000 * time, "v": value}
        for number, (key, time, value) in enumerate(LOG)
    )
    emitted = ({"k": k, "s": None if m is None else T0 + m * MINUTE, "n": n, "total": v} for k, m, n, v in rows)
    for name, lines in (("log.json", log), ("rows.json", emitted)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "by_hand.yaml").write_text(YAML)
    return folder / "by_hand.yaml"


def test_each_window_has_its_verdict_and_what_is_not_compared_is_told_apart(spark, tmp_path) -> None:
    rows = [
        ("a", 0, 2, "3.01"),  # within the tolerance
        ("b", 0, 1, "5.00"),  # a late record would change it
        ("c", 0, 1, "7.02"),  # beyond the tolerance
        ("d", 0, 2, "1.00"),  # no tolerance for counts
        ("f", 0, 1, "1.00"),  # no record at all
        ("a", 1, 1, "1.00"), ("a", 1, 1, "4.00"),  # which of them counts?
        ("a", 2, 1, "1.00"),  # still open
        ("a", -1, 1, "1.00"), ("a", 3, 1, "1.00"), ("a", 3, 1, "1.00"),  # outside of the range
        ("a", None, 1, "1.00"),
    ]  # fmt: skip
    defined = load_pipeline(written(tmp_path, rows))
    report = run_compare(spark, defined, NoProgress(), start=T0, end=T0 + 3 * MINUTE)
    assert report.counts == {
        "match": 1, "late_arrivals": 1, "mismatch": 3, "missing": 1, "extra": 1, "all_late": 1, "not_closed": 2,
    }  # fmt: skip
    assert report.labels["mismatch"]["several_rows"] == 1 and report.labels["extra"] == {"no_records": 1}
    by_window = {(row["k"], row["window_start"]): (row["verdict"], row["differs"]) for row in report.top}
    minutes = ("2020-09-13T12:27:00Z", "2020-09-13T12:28:00Z")
    assert by_window[("c", minutes[0])] == ("mismatch", ["total"])
    assert by_window[("d", minutes[0])] == ("mismatch", ["n"])
    assert by_window[("g", minutes[0])] == ("missing", None)
    assert by_window[("f", minutes[0])][0] == "extra"
    assert by_window[("a", minutes[1])][0] == "mismatch"
    assert (report.windows, report.rows_outside_range, report.rows_unreadable) == (8, 3, 1)
    assert "2 windows were still open at the end offsets and were not counted" in report.notes
    assert "3 emitted rows lie outside of the compared range and were left out" in report.notes
    assert (exit_code(report), report.late_records) == (3, 1)
    assert [(c["k"], c["offset"], c["late_by"]) for c in report.late_record_samples] == [("b", 7, 1000)]


def test_without_a_difference_that_the_log_does_not_explain_the_gate_stays_open(spark, tmp_path) -> None:
    rows = [("a", 0, 2, "3"), ("b", 0, 1, "5"), ("c", 0, 1, "7"), ("d", 0, 1, "1"), ("g", 0, 1, "1"), ("a", 1, 1, "1")]
    report = run_compare(spark, load_pipeline(written(tmp_path, rows)), NoProgress())
    assert report.counts == {"match": 5, "late_arrivals": 1, "all_late": 1, "not_closed": 2}
    assert exit_code(report) == 0
