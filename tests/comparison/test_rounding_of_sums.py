"""A live job adds floating-point numbers in its own order: that is no difference, and a cent is one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import load_pipeline
from spark_jobs.runs.work.progress import NoProgress

T0, SECOND, WINDOW = 1_600_000_020_000, 1000, 3_600_000
RECORDS, KEYS = 400, 6

YAML = """
name: usage
history:
  kind: files
  path: log.json
  format: json
  position: {partition: p, offset: o, arrival: a, arrival_unit: ms}
value: {schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v DOUBLE"}
keys: {k: k}
event_time: {expression: t, unit: ms}
watermark: {generator: ascending, emission: per_event}
window: WINDOW
aggregates: {n: count(*), total: sum(v), mean: avg(v), share: 100 * sum(v) / count(*), most: max(v)}
end_of_input: flush
live:
  source:
    kind: files
    path: rows.json
    format: json
    schema: "k STRING, s BIGINT, e BIGINT, n BIGINT, total TYPE, mean DOUBLE, share DOUBLE, most DOUBLE"
  window: {start: s, end: e, unit: ms}
"""
HOUR = "{type: tumbling, size: 1 h, offset: 27 min}"
SESSION = "{type: session, gap: 10 min}"

Change = Callable[[str, dict], dict]


def values() -> dict[str, list[float]]:
    """Skewed ones, as amounts and measured energy are."""
    chance = random.Random(7)
    return {f"k{key}": [round(math.exp(chance.gauss(1, 2)), 3) for _ in range(RECORDS)] for key in range(KEYS)}


def written(folder: Path, change: Change, *, window: str = HOUR, kind: str = "DOUBLE") -> Path:
    """A log and what a job emits that adds each window's values from the smallest to the largest."""
    log, rows = [], []
    for key, numbers in values().items():
        for number in numbers:
            offset = len(log)
            log.append({"p": 0, "o": offset, "a": T0 + offset, "k": key, "t": T0 + offset * SECOND // 10, "v": number})
        own = [record["t"] for record in log if record["k"] == key]
        total = sum(sorted(numbers))
        start, end = (T0, T0 + WINDOW) if window == HOUR else (own[0], own[-1] + 600_000)
        row = {
            "k": key, "s": start, "e": end, "n": len(numbers), "total": total, "mean": total / len(numbers),
            "share": 100 * total / len(numbers), "most": max(numbers),
        }  # fmt: skip
        rows.append(change(key, row))
    for name, lines in (("log.json", log), ("rows.json", rows)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "usage.yaml").write_text(YAML.replace("WINDOW", window).replace("TYPE", kind))
    return folder / "usage.yaml"


def as_it_is(key: str, row: dict) -> dict:
    return row


@pytest.mark.parametrize("window", [HOUR, SESSION])
def test_another_order_of_the_addends_is_no_difference(spark, tmp_path, window) -> None:
    report = run_compare(spark, load_pipeline(written(tmp_path, as_it_is, window=window)), NoProgress())
    assert report.counts == {"match": KEYS}
    exact = {key: sum(numbers) for key, numbers in values().items()}
    assert any(exact[key] != sum(sorted(numbers)) for key, numbers in values().items())


@pytest.mark.parametrize(("name", "by"), [("total", 0.01), ("mean", 1e-6), ("share", -0.01), ("most", 1e-12)])
def test_a_change_that_no_order_makes_is_found(spark, tmp_path, name, by) -> None:
    def changed(key: str, row: dict) -> dict:
        return row | {name: row[name] + by} if key == "k3" else row

    report = run_compare(spark, load_pipeline(written(tmp_path, changed)), NoProgress())
    assert report.counts == {"match": KEYS - 1, "mismatch": 1}
    assert [(row["k"], row["differs"]) for row in report.top if row["verdict"] == "mismatch"] == [("k3", [name])]


def test_a_row_that_holds_a_float_was_rounded_to_one(spark, tmp_path) -> None:
    report = run_compare(spark, load_pipeline(written(tmp_path, as_it_is, kind="FLOAT")), NoProgress())
    assert report.counts == {"match": KEYS}
