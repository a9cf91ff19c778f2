"""Nights of a Kafka Streams application, each partition cut anywhere: the tables of one full run at the same end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.report.counted import Facts
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.evaluation import EndPolicy
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import spool
from tests.runs.accounts import check_account
from tests.runs.small_applications import APPLICATIONS, EMIT, OF_TASKS, defined
from tests.runs.small_nights import assert_history_is_whole, tables_of
from tests.runs.small_runs import MINUTE, T0, run, write
from tests.sampling import first_of, seeds


def partitions_of(draw: random.Random, length: int = 1) -> list[list[dict]]:
    """The logs of two partitions, of which one may be minutes ahead of the other; some records are late or keyless.

    The larger the `length`, the longer they are.
    """
    logs: list[list[dict]] = []
    for partition in (0, 1):
        arrival, log = T0 + draw.randrange(3 * MINUTE), []
        for offset in range(draw.randrange(60 * length, 120 * length)):
            arrival += draw.choice((0, 700, 1000, 5000))
            behind = draw.randrange(MINUTE, 15 * MINUTE) if draw.random() < 0.1 else draw.randrange(12_000)
            time = -1 if draw.random() < 0.02 else max(T0, arrival - behind)
            key = draw.choice(("a", "c", None) if partition else ("b", "d", f"once {offset}"))
            log.append({"p": partition, "o": offset, "a": arrival, "k": key, "t": time, "v": offset})
        logs.append(log)
    return logs


@pytest.mark.parametrize("seed", seeds(3, 42))
def test_nights_of_tasks_end_in_the_tables_of_one_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    draw = random.Random(f"nights of tasks {seed}")
    application, data = OF_TASKS[seed % len(OF_TASKS)], tmp_path / "data"
    logs = partitions_of(draw, draw.choice((1, 4)))
    nights = draw.randrange(2, 4)
    cuts = [[0, *sorted(draw.choices(range(1, len(log)), k=nights - 1)), len(log)] for log in logs]
    if draw.random() < 0.3:  # both tasks began anew in what the first night has read
        at = min(log[cut[1] - 1]["a"] for log, cut in zip(logs, cuts, strict=True))
        state = draw.choice(("local", "restored", "lost"))
        restarts = [{"at": draw.randrange(T0, at), "state": state}]
        application = {**application, "watermark": {"grace": "10 s", "restarts": restarts}}
    if draw.random() < 0.2:
        application = {**application, "keys": {}}
    nightly, notes = defined(data, f"tasks_{seed}", application), []
    for number in range(nights):
        cut_logs = (log[cut[number] : cut[number + 1]] for log, cut in zip(logs, cuts, strict=True))
        write(data, [r for log in cut_logs for r in log], f"part-{number}.json")
        result = reconcile(spark, nightly, NoProgress())
        check_account(result)
        notes.append(result.note)
    has_lost = application["emission"] == EMIT and application["window"]["type"] == "session"
    assert [("a full run" in note) for note in notes] == [has_lost or not number for number in range(nights)], notes
    full = defined(data, f"tasks_full_{seed}", application)
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full), (application, cuts, notes)
    if nightly.keys:
        assert_history_is_whole(spark, nightly, ("pane",) if windows_of(nightly).is_merging else ())


@pytest.mark.parametrize("application", OF_TASKS[:3], ids=["emit", "sessions", "sliding"])
def test_late_records_change_what_came_out_long_ago(spark, tmp_path, application: dict) -> None:
    """One lies between two sessions, and makes a window that only complete values have; the next one takes it away.

    The last one lies at the end of a tumbling window, which is no part of it.
    """
    data = tmp_path / "data"
    nightly = defined(data, f"long_ago_{application['window']['type']}", application)
    for number, times in enumerate([[0, 30, 600], [15], [45], [60]]):
        rows = [{"p": 0, "a": T0 + 1000 * (600 + n), "k": "a", "t": T0 + 1000 * t, "v": t} for n, t in enumerate(times)]
        first = (0, 3, 4, 5)[number]
        write(
            data,
            [row | {"o": first + n, "a": row["a"] + 60_000 * number} for n, row in enumerate(rows)],
            f"{number}.json",
        )
        result = reconcile(spark, nightly, NoProgress())
        assert (result.continued_from is not None) == (number > 0)
    full = defined(data, f"{nightly.name}_full", application)
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full)


@pytest.mark.parametrize("seed", first_of(range(32), 0))
def test_nights_of_an_application_end_in_the_tables_of_one_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    draw = random.Random(f"streams nights {seed}")
    application, logs, data = APPLICATIONS[seed % len(APPLICATIONS)], partitions_of(draw), tmp_path / "data"
    nightly = defined(data, f"streams_{seed}", application)
    nights = draw.randrange(3, 5)
    cuts = [[0, *sorted(draw.choices(range(1, len(log)), k=nights - 1)), len(log)] for log in logs]
    notes = []
    for number in range(nights):
        write(
            data,
            [r for log, cut in zip(logs, cuts, strict=True) for r in log[cut[number] : cut[number + 1]]],
            f"part-{number}.json",
        )
        ends = EndPolicy(collector=gather) if number == nights - 1 else None
        result = reconcile(spark, nightly, NoProgress(), end_policy=ends)
        notes.append(result.note)
        assert ("a full run" in result.note) == (number == 0), notes
    advisor = Facts.model_validate(RunStore.configured().folder(result.run_id).read("facts.json")).advisor
    assert advisor is not None and advisor.parameter == "grace"
    late = spark.table(Tables.of(nightly).late).where("side_output").count()
    assert next(one.closed for one in advisor.tolerances if one.tolerance == advisor.configured) == late
    full = defined(data, f"streams_full_{seed}", application)
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full), (application, cuts, notes)
    assert_history_is_whole(spark, nightly)
