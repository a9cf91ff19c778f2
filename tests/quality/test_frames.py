"""What expectations look at beside the windows: the input by partition, and what changes by day."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.quality.columns import INPUT_COLUMNS, RECONCILIATION_COLUMNS
from spark_jobs.quality.frames import input_frame, reconciliation_frame, windows_frame
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.sources import PartitionRange

DAYS = "window_start >= '2013-01-08' AND window_start < '2013-01-14'"


def test_the_input_is_told_by_partition_from_the_plan_alone(flights: StagedRun) -> None:
    frame = input_frame(flights.plan)
    assert list(frame.columns) == list(INPUT_COLUMNS)
    assert list(frame["partition"]) == [0, 1, 2]
    assert frame["records"].sum() == frame["run_records"][0] == flights.plan.records
    assert set(frame["offset_gaps"]) == {0}


def test_a_partition_without_a_new_record_has_those_of_earlier_runs(flights: StagedRun) -> None:
    assert list(input_frame(flights.plan)["history_records"]) == list(input_frame(flights.plan)["records"])
    first, *others = flights.plan.partitions
    night = flights.plan.model_copy(
        update={
            "partitions": (replace(first, first_offset=first.end_offset, records=0), *others),
            "records": sum(p.records for p in others),
        }
    )
    frame = input_frame(night)
    assert (frame["records"][0], frame["history_records"][0]) == (0, first.records)
    assert set(frame["offset_gaps"]) == {0}


def with_partition(plan: Plan, partition: PartitionRange) -> Plan:
    return plan.model_copy(update={"partitions": (partition,)})


def test_offsets_without_a_record_are_gaps(flights: StagedRun) -> None:
    frame = input_frame(with_partition(flights.plan, PartitionRange(4, 100, 200, None, None, 75)))
    assert (frame["offset_gaps"][0], frame["offset_gap_share"][0]) == (25, 0.25)
    assert set(frame["run_ahead_ms"].isna()) == {True}  # no arrivals: nothing to set the event times against


def test_an_event_time_years_ahead_shows(flights: StagedRun) -> None:
    year = 365 * 86_400_000
    times = replace(flights.plan.event_times, end=flights.plan.processing_time_end + year + 1)
    assert set(input_frame(flights.plan.model_copy(update={"event_times": times}))["run_ahead_ms"]) == {year}


@pytest.fixture(scope="module")
def changed(flights: StagedRun):
    """Six days of windows; before, one of them was not there and others had other values."""
    staged = flights.staged.where(DAYS)
    before = staged.where("window_start < '2013-01-13'").withColumn("cause", F.lit("backfill"))
    kind = F.when(F.col("carrier") == "UA", "updated").when(F.col("carrier") == "HA", "retracted")
    touched = before.withColumn("rw_change", kind).where("rw_change IS NOT NULL")
    cause = F.when(F.col("window_start") < "2013-01-09", "source_repair").otherwise("late_arrivals")
    touched = touched.withColumn("cause", F.when(kind == "retracted", "retraction").otherwise(cause))
    new = staged.where("window_start >= '2013-01-13'").withColumn("cause", F.lit("backfill"))
    changes = touched.unionByName(new.withColumn("rw_change", F.lit("inserted")))
    evidence = replace(flights, staged=staged, before=before, changes=changes)
    return reconciliation_frame(evidence).set_index("day"), staged, before, changes


def test_changes_are_counted_by_day(changed) -> None:
    frame, staged, before, changes = changed
    assert list(frame.columns) == [c for c in RECONCILIATION_COLUMNS if c != "day"]
    assert list(frame.index) == [f"2013-01-{day:02}" for day in range(8, 14)]
    last = frame.loc["2013-01-13"]
    assert (last["before"], last["inserted"], last["windows"]) == (0, last["windows"], last["windows"])
    assert math.isnan(last["changed_share"])
    counts = {row[0]: row[1] for row in changes.groupBy("rw_change").count().collect()}
    assert {kind: frame[kind].sum() for kind in counts} == counts
    assert frame["windows"].sum() == staged.count() == frame["run_windows"].iloc[0]
    assert frame["run_before"].iloc[0] == before.count()
    assert frame["run_retracted_share"].iloc[0] == counts["retracted"] / before.count()


def test_a_change_without_a_cause_is_unexplained(changed) -> None:
    frame, _, _, changes = changed
    repaired = changes.where("cause = 'source_repair'").count()
    assert repaired > 0
    assert frame["unexplained"].sum() == frame.loc["2013-01-08", "unexplained"] == repaired


def test_nothing_before_needs_no_difference(flights: StagedRun) -> None:
    broken = flights.changes.withColumn("window_start", F.raise_error(F.lit("nobody should ask")).cast("timestamp"))
    frame = reconciliation_frame(replace(flights, changes=broken))
    assert frame["inserted"].sum() == frame["windows"].sum() == 14_656


def test_a_thin_day_stands_out_against_the_days_before(flights: StagedRun) -> None:
    thin = flights.staged.where("to_date(window_start) <> '2013-02-06' OR hour(window_start) < 12")
    frame = reconciliation_frame(replace(flights, staged=thin)).set_index("day")
    assert frame.loc["2013-02-06", "volume_ratio"] < 0.25
    assert math.isnan(frame.loc["2013-01-02", "volume_ratio"])  # fewer than three days before it
    rest = frame["volume_ratio"].drop("2013-02-06").dropna()
    assert len(rest) > 80
    assert rest.between(0.25, 4).all()  # the blizzard of 2013-02-09 among them


def test_windows_that_start_on_partial_days_are_not_compared(flights: StagedRun) -> None:
    day, second = 86_400_000, 1_000
    start = 1_360_108_800_000 + 12 * 3_600_000  # 2013-02-06T12:00:00Z
    times = replace(flights.plan.event_times, end=start + second)
    cut = flights.plan.model_copy(update={"event_times": times})
    staged = flights.staged.where(F.unix_millis("window_start") < start)
    frame = reconciliation_frame(replace(flights, plan=cut, staged=staged)).set_index("day")
    assert not frame.loc["2013-02-06", "is_whole_day"]
    assert math.isnan(frame.loc["2013-02-06", "volume_ratio"])
    assert frame.loc["2013-02-05", "is_whole_day"]
    assert start % day == 12 * 3_600_000


def test_an_empty_result_is_one_row_that_says_so(flights: StagedRun) -> None:
    frame = reconciliation_frame(replace(flights, staged=flights.staged.limit(0)))
    assert list(frame["run_windows"]) == [0]
    assert set(frame["volume_ratio"].isna()) == {True}


def test_a_session_that_did_not_fire_needs_no_record_and_has_none_in_it(flights: StagedRun) -> None:
    """Rows of each state with each pair of counts, as sessions: what the engine cannot give is named."""
    sessions = replace(flights, spec=replace(flights.spec, windows=SessionWindows(1_200_000)))
    row = flights.staged.where("records_on_time > 0").limit(1)
    cases = {
        # state, pane, on time, late, dropped: records, rule broken
        ("not_emitted", None, 0, 0, 0): (None, None),
        ("not_emitted", None, 0, 0, 2): (None, None),
        ("not_emitted", None, 1, 0, 0): (None, "a session that did not fire, but records in it"),
        ("open", None, 0, 0, 0): (None, None),
        ("open", None, 0, 1, 0): (None, "a session that did not fire, but records in it"),
        ("all_late", None, 0, 0, 3): (3, None),
        ("all_late", None, 0, 0, 0): (0, "all late, but none was dropped"),
        ("closed", 0, 2, 0, 1): (3, None),
        ("closed", 0, 0, 0, 0): (0, "closed, but without a record in it"),
    }
    counts = ("state", "pane", "records_on_time", "records_late", "records_dropped")
    schema = "state STRING, pane INT, records_on_time BIGINT, records_late BIGINT, records_dropped BIGINT"
    staged = row.drop(*counts).crossJoin(flights.spark.createDataFrame(list(cases), schema))
    found = {tuple(r[c] for c in counts): (r.rw_records, r.rw_contradiction) for r in frame_rows(sessions, staged)}
    assert found == cases
    on_grid = {tuple(r[c] for c in counts): r.rw_contradiction for r in frame_rows(flights, staged)}
    assert on_grid["not_emitted", None, 0, 0, 0] == "not emitted, but only sessions can be"
    assert on_grid["open", None, 0, 0, 0] == "open, but without a record on time"


def frame_rows(run: StagedRun, staged: DataFrame) -> list[Row]:
    return windows_frame(replace(run, staged=staged)).collect()
