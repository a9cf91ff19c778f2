"""The comparison with a real query names the field of the definition that its rows contradict."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import run_compare
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.progress import NoProgress
from tests.conformance.formats import FEW_ROWS
from tests.runs.live_query import (
    START,
    WINDOWS,
    LiveQuery,
    as_rows,
    backfilled,
    files_stream,
    live_section,
    over_files,
)
from tests.sampling import first_of

ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"
MERGE_LOCALLY = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"
TIME_ZONE = "spark.sql.session.timeZone"

Files = list[list[tuple[str, int]]]
"""Records by file, which is a batch: key, seconds after START."""


def live_with(
    spark: SparkSession,
    folder: Path,
    files: Files,
    window: str,
    conf: dict[str, str],
    mode: str = "append",
    gap: str = "20 seconds",
) -> LiveQuery:
    """A query whose session has these settings, after it has read the files."""
    session = spark.newSession()
    for name, value in {**FEW_ROWS, "spark.sql.shuffle.partitions": "1", **conf}.items():
        session.conf.set(name, value)
    landing = folder / "landing"
    landing.mkdir()
    for number, records in enumerate(files):
        rows = [{"k": key, "ts": START + seconds * 1000, "v": seconds} for key, seconds in records]
        file = landing / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (number + 1, number + 1))  # the query reads them in this order
    stream = files_stream(session, landing, "json", "10 seconds", maxFilesPerTrigger="1")
    live = LiveQuery([stream], folder, mode, window, gap=gap)
    live.run([lambda: None])
    return live


def compared(spark: SparkSession, live: LiveQuery, name: str, window: dict, **watermark: object) -> Verdicts:
    said = {"delay": "10 seconds", "checkpoint": str(live.checkpoint), **watermark}
    path = live.checkpoint.parent / "landing"
    section = live_section(live) | ({"pane": "batch"} if live.mode == "update" else {})
    return run_compare(spark, over_files(live, path, "json", name, window, watermark=said, live=section), NoProgress())


def found(report: Verdicts) -> dict[str, dict[str, int]]:
    """Windows that differ, by label."""
    return {name: report.labels.get(name, {}) for name in ("mismatch", "missing", "extra") if report.counts.get(name)}


LATE_BY_THE_OWN_BATCH: Files = [[("a", 5), ("b", 20)], [("a", 130)], [("a", 30), ("b", 70), ("b", 131)], [("c", 300)]]
"""The records at 30 and 70 are late by the watermark of their batch, and not by that of the batch before."""


@pytest.mark.long
@pytest.mark.parametrize(("mode", "allows"), first_of([("append", False), ("update", True)]))
def test_late_records_tell_which_watermark_found_them(
    spark: SparkSession, tmp_path: Path, mode: str, allows: bool
) -> None:
    conf = {ALLOW_MULTIPLE: str(allows).lower()}
    live = live_with(spark, tmp_path, LATE_BY_THE_OWN_BATCH, "tumbling", conf, mode)
    window, name = WINDOWS["tumbling"], f"of_late_{mode}"
    assert not found(compared(spark, live, name, window, allow_multiple=allows))

    label = f"matches_with_allow_multiple_{str(allows).lower()}"
    wrong = compared(spark, live, name, window, allow_multiple=not allows)
    assert found(wrong) == {"mismatch": {label: 1}, "extra" if allows else "missing": {label: 1}}
    assert f"2 windows that differ match with `watermark.allow_multiple: {str(allows).lower()}`" in wrong.notes
    assert wrong.next_step.startswith("Rows contradict a field of the definition")


@pytest.mark.long
def test_a_value_that_would_change_a_window_that_is_right_explains_no_other_of_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = [[*LATE_BY_THE_OWN_BATCH[0], ("d", 10)], LATE_BY_THE_OWN_BATCH[1], [*LATE_BY_THE_OWN_BATCH[2], ("d", 40)]]
    live = live_with(spark, tmp_path, [*files, [("c", 300)]], "tumbling", {ALLOW_MULTIPLE: "false"})
    label = "matches_with_allow_multiple_false"
    report = compared(spark, live, "of_contradicted", WINDOWS["tumbling"])
    assert found(report) == {"mismatch": {label: 2}, "missing": {label: 1}}
    for file in live.rows.iterdir():  # now the row of key d has the record that is late by the other value
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [{**row, "n": 2, "total": 50} if row["k"] == "d" else row for row in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = compared(spark, live, "of_contradicted", WINDOWS["tumbling"])
    assert found(report) == {"mismatch": {"unexplained": 1}, "missing": {label: 1}}


@pytest.mark.long
def test_sessions_tell_whether_they_were_merged_before_late_records_were_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    files: Files = [[("a", 100)], [("z", 100)], [("a", 60), ("a", 75)], [("z", 300)], [("z", 301)]]
    live = live_with(spark, tmp_path, files, "session", {MERGE_LOCALLY: "true"})
    assert (60, 95) in {((row["s"] - START) // 1000, (row["e"] - START) // 1000) for row in live.emitted()}
    right = {"merge_sessions_in_local_partition": True}
    assert not found(compared(spark, live, "of_merged", WINDOWS["session"], **right))
    label = "matches_with_merge_sessions_in_local_partition_true"
    report = compared(spark, live, "of_merged", WINDOWS["session"])
    assert found(report) == {"missing": {label: 1}, "extra": {label: 1}}


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) - START // 1000


CHANGES_OF_THE_CLOCK: Files = [
    [(key, seconds(text)) for key, text in records]
    for records in (
        # 23.5 hours apart where the day has 23; then 24.5 apart where it has 25.
        [("a", "2024-03-09T20:00:00-05:00"), ("a", "2024-03-10T20:30:00-04:00"), ("b", "2024-03-10T03:00:00-04:00")],
        [("a", "2024-11-02T20:00:00-04:00"), ("a", "2024-11-03T19:30:00-05:00"), ("b", "2024-11-04T00:30:00-05:00")],
        [("c", "2025-06-01T00:00:00-04:00")],
    )
]


@pytest.mark.long
@pytest.mark.parametrize("zone", first_of(["America/New_York", "UTC"]))
def test_a_gap_of_a_day_follows_the_calendar_of_the_query_s_time_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    live = live_with(spark, tmp_path, CHANGES_OF_THE_CLOCK, "session", {TIME_ZONE: zone}, gap="1 day")
    own = {"type": "session", "gap": "1 day", "time_zone": zone}
    name = f"of_days_{zone[:3].lower()}"
    rows, *_ = backfilled(spark, over_files(live, tmp_path / "landing", "json", name, own))
    assert rows == as_rows(live.emitted())
    lengths = sorted((end - start) / 3_600_000 for key, start, end, *_ in rows if key == "a")
    assert lengths == ([23, 24, 48.5] if zone != "UTC" else [24, 24, 47.5])
    assert not found(compared(spark, live, name, own))

    report = compared(spark, live, name, {**own, "time_zone": "America/New_York"})
    label = "matches_with_time_zone_UTC"
    wrong = {"missing": {label: 3}, "extra": {label: 3}}
    assert found(report) == ({} if zone != "UTC" else wrong)
