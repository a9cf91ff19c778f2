"""The benchmark: it runs from end to end on few records, and both sides count the same windows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.columns import ARRIVAL, OFFSET
from tests.bench import COMMAND, run_bench, sections
from tests.bench.data import MIDNIGHT, Dataset, dataset
from tests.bench.measure import alternate, input_read, to_nowhere
from tests.bench.scale import Log
from tests.bench.workload import plain, replayed

pytestmark = pytest.mark.long

RECORDS = 100_000
WINDOWS = TumblingWindows(MINUTE)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def data(spark: SparkSession, home: Path) -> Dataset:
    return dataset(spark, home, RECORDS)


def _replayed(spark: SparkSession, data: Dataset, keys: int) -> dict:
    found: list[Row] = []

    def keep(frame: DataFrame) -> None:
        found.extend(frame.collect())

    replayed(spark, data, keys, WINDOWS, keep)
    return {(row["key"], row["window_start"]): row for row in found}


@pytest.mark.parametrize(
    ("slow", "warm_ups"),
    [
        pytest.param(1.0, 5, id="as many again"),
        pytest.param(9.0, 2, id="half a minute"),
        pytest.param(60.0, 1, id="one"),
    ],
)
def test_what_warms_up_does_not_count(monkeypatch: pytest.MonkeyPatch, slow: float, warm_ups: int) -> None:
    now, ran = [0.0], []
    monkeypatch.setattr("tests.bench.measure.time.perf_counter", lambda: now[0])

    def contender(name: str, seconds: float) -> None:
        ran.append(name)
        now[0] += slow if len(ran) <= 2 * warm_ups else seconds

    said: list[str] = []
    median = alternate(
        {"ours": lambda: contender("ours", 3.0), "theirs": lambda: contender("theirs", 2.0)}, 5, said.append
    )
    assert ran == ["ours", "theirs"] * (warm_ups + 5)
    assert median == {"ours": 3.0, "theirs": 2.0}
    assert sum(line.startswith("warm-up:") for line in said) == 2 * warm_ups


@pytest.mark.parametrize("keys", [100, 10_000])
def test_both_sides_count_the_same_windows(spark: SparkSession, data: Dataset, keys: int) -> None:
    ours = _replayed(spark, data, keys)
    theirs = {(row["key"], row["window_start"]): row for row in plain(spark, data, keys, WINDOWS).collect()}

    assert ours.keys() == theirs.keys()
    for group, row in theirs.items():
        complete = tuple(ours[group][f"{name}__complete"] for name in ("events", "total", "least", "most"))
        assert complete == (row["events"], row["total"], row["least"], row["most"])


def test_the_records_are_out_of_order_and_some_are_late(spark: SparkSession, data: Dataset) -> None:
    ours = _replayed(spark, data, 100)

    dropped = sum(row["records_dropped"] for row in ours.values())

    assert sum(row["records_on_time"] for row in ours.values()) + dropped == RECORDS
    assert 0 < dropped < RECORDS // 20


def test_a_log_whose_arrival_never_goes_back(spark: SparkSession, data: Dataset) -> None:
    backwards = data.read(spark, 100).selectExpr(
        "arrival < lag(arrival) OVER (PARTITION BY partition ORDER BY offset) AS goes_back"
    )

    assert backwards.where(F.col("goes_back")).isEmpty()


def test_the_input_of_a_block_is_that_of_its_own_stages(spark: SparkSession, data: Dataset) -> None:
    records = data.read(spark, 100)
    to_nowhere(records)
    with input_read(spark) as none:
        pass
    with input_read(spark) as twice:
        to_nowhere(records)
        to_nowhere(records)

    assert none.records == 0
    assert twice.records == 2 * RECORDS
    assert twice.bytes > 0


def test_the_engine_section_prints_a_table(spark: SparkSession, home: Path, data: Dataset) -> None:
    text = io.StringIO()

    rows = run_bench(Console(file=text, width=200), section="engine", records=RECORDS, rounds=1, home=home)

    assert [row.target for row in rows] == ["<= 2.6", "<= 1.6"]
    assert "| engine: 0.1M records" in text.getvalue()
    assert COMMAND in text.getvalue()


def test_a_burst_is_a_tenth_of_the_log_within_one_minute_and_arrivals_never_go_back(spark: SparkSession) -> None:
    log = Log(RECORDS, HOUR, burst=0.1)
    arrivals = [row[0] for row in log.read(spark).records.orderBy(OFFSET).select(ARRIVAL).collect()]

    middle = MIDNIGHT + HOUR // 2
    assert arrivals == sorted(arrivals)
    assert sum(middle <= arrival < middle + MINUTE for arrival in arrivals) == RECORDS // 10
    assert arrivals[0] >= MIDNIGHT and arrivals[-1] < MIDNIGHT + HOUR


def test_chunks_of_a_generated_log_have_the_windows_of_the_whole(spark: SparkSession) -> None:
    whole, parts = (
        [row for windows in Log(RECORDS, HOUR, chunks=chunks).replay(spark) for row in windows.collect()]
        for chunks in (1, 3)
    )
    assert sorted(map(str, parts)) == sorted(map(str, whole))
    assert sum(row["records_on_time"] + row["records_dropped"] for row in whole) == RECORDS


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no section 'engines'"):
        run_bench(Console(file=io.StringIO()), section="engines")


def test_the_sections_that_the_command_names() -> None:
    assert {"engine", "streaming", "sliding", "sessions", "growth", "year"} <= set(sections())
