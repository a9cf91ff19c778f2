"""A union gets another input, or has them in another order, after records of one of them are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_runs import record, run, write
from tests.sampling import one_of

_INPUT = """    - name: {name}
      history:
        kind: files
        path: {folder}/{name}/*.json
        format: json
        position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
      value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
      keys: {{k: k}}
      event_time: {{expression: t, unit: ms}}
      watermark: {{generator: bounded_out_of_orderness, bound: 10 s, partitions: [0]}}
"""
_REST = """window: {type: tumbling, size: 1 min}
aggregates: {n: count(*), total: sum(v)}
output: {namespace: union_inputs}
"""


def union(folder: Path, name: str, inputs: tuple[str, ...]) -> Pipeline:
    history = "".join(_INPUT.format(name=one, folder=folder) for one in inputs)
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\nhistory:\n  kind: union\n  of:\n{history}{_REST}")
    return load_pipeline(path)


def put(folder: Path, name: str, numbers: range, key: str, file: str) -> None:
    write(folder / name, [record(i, p=0, o=i, k=key, t=record(i)["a"]) for i in numbers], file)


def windows(spark: SparkSession, defined: Pipeline) -> dict[tuple, tuple]:
    rows = spark.table(Tables.of(defined).windows).collect()
    return {(r["k"], r["window_start"]): (r["n"], r["state"]) for r in rows}


THREE = ("one", "two", "three")


def story(spark: SparkSession, folder: Path, first: tuple[str, ...], then: tuple[str, ...], *, loses: bool) -> dict:
    """The windows after a run over the first inputs, a night after a loss, and a night over the others."""
    put(folder, "one", range(60), "a", "old.json")
    put(folder, "one", range(60, 200), "a", "new.json")
    put(folder, "two", range(200), "b", "all.json")
    put(folder, "three", range(200), "c", "all.json")
    name = "_".join(("inputs", *first, "then", *then, "lost" if loses else "there"))
    defined = union(folder, name, first)
    run(spark, defined)
    published = windows(spark, defined)
    kept = {}
    if loses:
        (folder / "one" / "old.json").unlink()
        run(spark, defined)
        kept = {cell: value for cell, value in windows(spark, defined).items() if value[1] == "history_gone"}
        assert kept and all(published[cell][0] == n for cell, (n, _) in kept.items())
    other = union(folder, name, then)
    reconcile(spark, other, LogProgress())
    now = windows(spark, other)
    assert {cell: now.get(cell) for cell in kept} == kept
    return now


def counts(windows: dict[tuple, tuple]) -> dict[str, int]:
    return {key: sum(n for (k, _), (n, _) in windows.items() if k == key) for key in {k for k, _ in windows}}


@one_of(2, 0)
def test_kept_windows_stay_where_an_input_comes_behind_the_others(spark, tmp_path) -> None:
    now = story(spark, tmp_path, THREE[:2], THREE, loses=True)
    assert counts(now) == dict.fromkeys("abc", 200)


@one_of(2, 1)
@pytest.mark.parametrize("loses", [False, True])
def test_an_input_that_goes_takes_its_windows_with_it(spark, tmp_path, loses) -> None:
    assert counts(story(spark, tmp_path, THREE, THREE[:2], loses=loses)) == dict.fromkeys("ab", 200)


@one_of(2, 2)
@pytest.mark.parametrize("then", [("three", "one", "two"), pytest.param(("two", "one"), marks=pytest.mark.long)])
def test_inputs_in_another_order_are_computed_anew_and_refused_where_records_are_gone(spark, tmp_path, then) -> None:
    now = story(spark, tmp_path, THREE[:2], then, loses=False)
    assert counts(now) == dict.fromkeys("abc"[: len(then)], 200)
    lost = tmp_path / "lost"
    lost.mkdir()
    with pytest.raises(HistoryError, match=r"other numbers than in run .*put new ones behind them"):
        story(spark, lost, THREE[:2], then, loses=True)
