"""Arrivals of a wrong clock are told by the log alone: each night ends with what a full run gives at any time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import HistoryError
from tests.runs.clocked_logs import ClockedLog
from tests.runs.small_nights import log_of as small_log
from tests.runs.small_runs import T0, record
from tests.sampling import first_of, in_turn, one_of, sample

HOUR = 3_600_000
DAY = 24 * HOUR
AHEAD = "arrival ahead of records behind it in its partition: "

KINDS = ("files", "topic", "iceberg", "stitched", "union")
needs_broker = ("topic", "stitched")


def log_of(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, kind: str, **more: str) -> ClockedLog:
    broker: KafkaBroker | None = request.getfixturevalue("kafka") if kind in needs_broker else None
    return ClockedLog(spark, tmp_path, kind, broker, **more)


def later(i: int, after: int) -> dict:
    """Record number i, with arrival and event time so much later."""
    plain = record(i)
    return plain | {"a": plain["a"] + after, "t": plain["t"] + after}


@one_of(3, 0)
@pytest.mark.parametrize("kind", first_of(in_turn(KINDS)))
def test_an_arrival_ahead_of_records_behind_it_is_in_quarantine_for_good(spark, tmp_path, request, kind: str) -> None:
    log = log_of(spark, tmp_path, request, kind)
    log.put([record(i, a=T0 + 36 * HOUR) if i == 150 else record(i) for i in range(200)])
    log.night(T0 + HOUR)
    (bad,) = log.unusable()
    assert bad[0] == 75 and bad[1].endswith(f"{AHEAD}2020-09-15T00:27:00Z")
    log.put([later(i, 2 * DAY) for i in range(200, 230)])
    assert log.night(T0 + 2 * DAY + HOUR).continued_from is not None
    assert log.unusable() == [bad]
    log.assert_as_one_full_run(T0 + 9 * DAY)


@one_of(3, 1)
@pytest.mark.parametrize("kind", first_of(in_turn(KINDS)))
def test_the_last_arrivals_are_not_read_while_they_are_ahead_of_the_clock(spark, tmp_path, request, kind: str) -> None:
    log = log_of(spark, tmp_path, request, kind)
    log.put([later(i, 30 * HOUR) if i in (196, 198) else record(i) for i in range(200)])
    log.night(T0 + HOUR)
    first, other = log.ends().values()
    assert (first, other, log.unusable()) == (98, 100, [])
    assert "nothing has arrived" in log.night(T0 + 2 * HOUR).note
    log.put([later(i, 30 * HOUR) for i in range(200, 205) if i % 2])  # the other partition
    log.night(T0 + 40 * HOUR)
    log.assert_as_one_full_run(T0 + 40 * HOUR)
    assert log.unusable() == [] and next(iter(log.ends().values())) == 100


@one_of(3, 2)
@pytest.mark.parametrize("kind", first_of(in_turn(KINDS)))
def test_the_night_in_which_records_follow_puts_what_was_ahead_into_quarantine(
    spark, tmp_path, request, kind: str
) -> None:
    log = log_of(spark, tmp_path, request, kind)
    log.put([later(i, 30 * HOUR) if i == 198 else record(i) for i in range(200)])
    log.night(T0 + HOUR)
    assert log.unusable() == []
    log.put([record(i) for i in range(200, 240)])
    log.night(T0 + 2 * HOUR)
    assert [offset for offset, _ in log.unusable()] == [99]
    log.assert_as_one_full_run(T0 + 300 * DAY)


@one_of(3, 3)
@pytest.mark.parametrize("kind", first_of(in_turn(KINDS)))
def test_what_was_read_and_is_followed_by_much_earlier_records_is_taken_back(
    spark, tmp_path, request, kind: str
) -> None:
    log = log_of(spark, tmp_path, request, kind)
    log.put([later(i, 61 * 60_000) if i == 198 else record(i) for i in range(200)])
    log.night(T0 + 5 * 60_000)  # an hour ahead of the clock: within the limit
    assert list(log.ends().values()) == [100, 100]
    log.put([record(i) for i in range(200, 240)])
    night = log.night(T0 + 10 * 60_000)
    assert "ahead of a record behind it" in night.note
    log.assert_as_one_full_run(T0 + 3 * DAY)


@one_of(3, 4)
@pytest.mark.parametrize("kind", sample(["files"], ["files", "topic", "stitched"]))
def test_a_running_maximum_leaves_out_what_is_ahead(spark, tmp_path, request, kind: str) -> None:
    log = log_of(spark, tmp_path, request, kind, going_back="running_maximum")

    def wobbling(i: int) -> dict:
        return record(i) | {"a": record(i)["a"] + (7 * i % 5) * 60_000}

    log.put([wobbling(i) | ({"a": T0 + 36 * HOUR} if i == 150 else {}) for i in range(200)])
    log.night(T0 + HOUR)
    assert [offset for offset, _ in log.unusable()] == [75]
    log.put([wobbling(i) for i in range(200, 300)])
    assert log.night(T0 + 2 * HOUR).continued_from is not None
    log.assert_as_one_full_run(T0 + 3 * DAY)


@one_of(3, 5)
@pytest.mark.parametrize("kind", first_of(in_turn(KINDS)))
def test_a_night_up_to_an_instant_loses_no_record_whose_arrival_is_beyond_it(
    spark, tmp_path, request, kind: str
) -> None:
    log = log_of(spark, tmp_path, request, kind)
    log.put([record(i, a=T0 + 36 * HOUR) if i in (50, 52) else record(i) for i in range(100)])
    log.night(T0 + HOUR, until=T0 + 80_000)
    log.put([record(i, a=T0 + 36 * HOUR) if i in (151, 172) else record(i) for i in range(100, 200)])
    night = log.night(T0 + 2 * HOUR, until=T0 + 160_000)
    assert night.continued_from is not None
    assert [offset for offset, _ in log.unusable()] == [25, 26, 75]
    log.assert_as_one_full_run(T0 + 9 * DAY, as_of=log.ends())


def test_a_small_step_back_is_refused_at_any_instant(spark, tmp_path, request) -> None:
    log = log_of(spark, tmp_path, request, "files")
    log.put([record(i) for i in range(100)])
    log.night(T0 + HOUR)
    log.put([record(i, a=T0 + 400_000) if i == 150 else record(i) for i in range(100, 200)])
    with pytest.raises(HistoryError, match="the arrival goes back: offset 75"):
        log.night(T0 + HOUR, until=T0 + 170_000)
    with pytest.raises(HistoryError, match="the arrival goes back: offset 75"):
        log.night(T0 + HOUR)


def test_sessions_are_read_without_what_is_ahead(spark, tmp_path, request) -> None:
    log = log_of(spark, tmp_path, request, "files", window="{type: session, gap: 20 s}")
    log.put([record(i, a=T0 + 36 * HOUR) if i == 150 else record(i) for i in range(200)])
    log.night(T0 + HOUR)
    log.put([later(i, 2 * DAY) for i in range(200, 230)])
    log.night(T0 + 2 * DAY + HOUR)
    log.assert_as_one_full_run(T0 + 9 * DAY)


@pytest.mark.parametrize("kind", sample(["topic"], ["topic", "stitched", "files", "iceberg"]))
def test_a_night_goes_on_with_the_latest_arrival_that_was_read(spark, tmp_path, request, kind: str) -> None:
    log = log_of(spark, tmp_path, request, kind, going_back="running_maximum")
    records = small_log(3, 200)
    half = [r["a"] for r in records if r["p"] == 0][50]
    early, late = ([r for r in records if (r["a"] <= half) == before] for before in (True, False))
    last = max((r for r in early if r["p"] == 0), key=lambda r: r["o"])
    log.put([r | {"a": r["a"] + 20 * 60_000} if r is last else r for r in early])
    log.night(T0 + DAY)
    log.put(late)
    log.night(T0 + 2 * DAY)
    log.assert_as_one_full_run(T0 + 2 * DAY)
