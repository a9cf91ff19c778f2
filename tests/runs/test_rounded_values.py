"""Two runs that add the same numbers in another order have published the same; a difference of a cent is a change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import assert_history_is_whole, rows
from tests.runs.small_runs import BOUNDED, T0, definition_text, run, write
from tests.sampling import first_of


def log_of(seed: int, count: int = 600) -> list[dict]:
    """One record every half second, in one partition; amounts in cents, of both signs and of very different sizes."""
    draw = random.Random(seed)
    amounts = [round(draw.choice((1, 1e3, 1e6)) * draw.uniform(-1, 1.2), 2) for _ in range(count)]
    times = [T0 + number * 500 for number in range(count)]
    return [
        {"p": 0, "o": n, "a": t, "k": "a", "t": t, "v": v} for n, (t, v) in enumerate(zip(times, amounts, strict=True))
    ]


def written(folder: Path, records: list[dict], order: int) -> None:
    """The history as compaction may leave it: the same records, in other files and in another order."""
    for old in folder.glob("*.json"):
        old.unlink()
    shuffled = list(records)
    random.Random(order).shuffle(shuffled)
    for number in range(order):
        write(folder, shuffled[number::order], f"part-{order}-{number}.json")


def defined(folder: Path, name: str) -> Pipeline:
    text = definition_text(
        name,
        folder / "data",
        watermark=f"{BOUNDED}, emission: per_event",
        aggregates="total: sum(v), mean: avg(v), n: count(*), top: max(v)",
    )
    file = folder / f"{name}.yaml"
    file.write_text(text.replace("v BIGINT", "v DOUBLE").replace("partitions: [0, 1]", "partitions: [0]"))
    return load_pipeline(file)


@pytest.mark.parametrize("seed", first_of(range(1, 9), 1))
def test_another_order_of_the_addends_changes_nothing_and_a_cent_does(spark, tmp_path: Path, seed: int) -> None:
    records, pipeline = log_of(seed), defined(tmp_path, f"rounded_{seed}")
    table = Tables.of(pipeline).windows
    written(tmp_path / "data", records, 1)
    run(spark, pipeline)
    before = rows(spark.table(table))
    for order in (2, 3, 5):
        written(tmp_path / "data", records, order)
        assert not run(spark, pipeline).changes
        assert rows(spark.table(table)) == before
    records[300] |= {"v": round(records[300]["v"] + 0.01, 2)}
    written(tmp_path / "data", records, 7)
    assert run(spark, pipeline).changes == {"updated": 1}
    assert len(set(rows(spark.table(table))) - set(before)) == 1
    records.append(records[-1] | {"o": len(records), "a": records[-1]["a"] + 500})
    written(tmp_path / "data", records, 4)
    night = reconcile(spark, pipeline, NoProgress())
    assert night.changes.get("updated", 0) <= 1
    assert_history_is_whole(spark, pipeline)
    assert not any(column.startswith("rw_") for column in spark.table(table).columns)
