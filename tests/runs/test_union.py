"""Runs and nights over a union: two folders of files as one stream, each with a watermark of its own."""

# pyright: reportArgumentType=false

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.output import print_plan, print_reasons
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.looking import answer_of
from spark_jobs.replay.from_pipeline import strategy_of
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.looks import Question, Subject, Table
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, read_planned
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.runs.work.quarantine import reasons_of
from spark_jobs.sources import check_expressions, names_of, quarantined
from tests.runs.small_nights import tables_of
from tests.runs.small_runs import MINUTE, T0, write
from tests.runs.small_unions import JOBS, pipeline
from tests.sampling import sample
from tests.sequential.flink import LiveJob, Record


def log_of(seed: int, count: int) -> list[tuple[str, dict]]:
    """Records of both inputs in the order of their arrival; some minutes late, some of the one input long silent."""
    draw = random.Random(seed)
    found, arrival, offsets = [], T0, {("orders", 0): 0, ("orders", 1): 0, ("returns", 0): 0}
    for number in range(count):
        arrival += draw.choice((100, 700, 1000, 2500))
        quiet = count // 3 < number < count // 2
        place = draw.choice([p for p in offsets if not quiet or p[0] == "orders"])
        behind = draw.randrange(60_000, 400_000) if draw.random() < 0.05 else draw.randrange(0, 12_000)
        time, key = max(T0, arrival - behind), draw.choice("ab")
        row = {"p": place[1], "o": offsets[place], "a": arrival}
        if place[0] == "orders":
            row |= {"k": key, "t": time, "v": number}
        else:
            row |= {"shop": key, "happened": time, "refund": number}
        found.append((place[0], row))
        offsets[place] += 1
    return found


def put(folder: Path, log: list[tuple[str, dict]], name: str) -> None:
    for of in ("orders", "returns"):
        rows = [row for place, row in log if place == of]
        (folder / of).mkdir(exist_ok=True)
        if rows:
            write(folder / of, rows, name)


def run(spark: SparkSession, defined: Pipeline, **options) -> RunResult:
    return execute(spark, defined, make_plan(spark, defined, **options), LogProgress())


def as_live(defined: Pipeline, log: list[tuple[str, dict]]) -> dict[tuple, tuple[int, int]]:
    """Records and sum of each window's last pane by the sequential core, over the records in position order."""
    places = {"orders": 0, "returns": 10_000}
    discovered = dict(strategy_of(defined, [0, 1, 10_000]).discovered)
    records = [
        Record(p, row["o"], max(row["a"], discovered.get(p, 0)), row.get("k", row.get("shop")), time)
        for of, row in log
        for p, time in [(places[of] + row["p"], row["t"] if "t" in row else row["happened"])]
    ]
    order = sorted(range(len(records)), key=lambda i: (records[i].arrival, records[i].partition, records[i].offset))
    values = [log[i][1].get("v", -log[i][1].get("refund", 0)) for i in order]
    job = LiveJob(strategy_of(defined, [0, 1, 10_000]), TumblingWindows(MINUTE, 0), defined.allowed_lateness)
    result = job.run([records[i] for i in order], until=max(r.arrival for r in records), flush=True)
    assert result.watermark == MAX_TIMESTAMP
    return {
        (firing.key, firing.window.start): (len(firing.elements), sum(values[i] for i in firing.elements))
        for _, firing in result.firings
    }


def faithful(spark: SparkSession, defined: Pipeline) -> dict[tuple, tuple[int, int]]:
    rows = spark.table(Tables.of(defined).windows).where("n IS NOT NULL").selectExpr("*", "unix_millis(window_start) s")
    return {(row["k"], row["s"]): (row["n"], row["total"]) for row in rows.collect()}


@pytest.mark.long
@pytest.mark.parametrize("job", sample(["idleness"], list(JOBS)))
def test_chunks_and_nights_of_a_union_give_what_the_sequential_core_gives(
    spark: SparkSession, tmp_path: Path, job: str
) -> None:
    log = log_of(7, 400)
    name = job.replace(" ", "_")
    defined, whole = pipeline(tmp_path, f"nights_{name}", job), pipeline(tmp_path, f"whole_{name}", job)
    for number, (begin, end) in enumerate(pairwise(sample((0, 260, 400), (0, 150, 260, 400)))):
        put(tmp_path, log[begin:end], f"{number}.json")
        night = reconcile(spark, defined, LogProgress())
        reads_on = night.continued_from is not None or "state is ahead of new records" in night.note
        assert number == 0 or (reads_on if "discovered" in job else night.continued_from is not None), night.note
    assert night.continued_from is not None
    run(spark, whole, chunks=3)
    assert faithful(spark, whole) == as_live(whole, log)
    assert tables_of(spark, defined) == tables_of(spark, whole)
    assert "nothing has arrived" in reconcile(spark, defined, LogProgress()).note
    late = spark.table(Tables.of(defined).late).select("partition").distinct().collect()
    assert {row[0] for row in late} == {0, 1, 10_000}
    (table,) = answer_of(lambda: spark, defined, Question(what=Subject.LATE), LogProgress()).tables
    assert set(column_of(table, "partition")) == {"0 of orders", "1 of orders", "0 of returns"}


def column_of(table: Table, name: str) -> list[str | None]:
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.mark.long
def test_what_becomes_of_one_inputs_files_is_told_with_its_name(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(3, 200)
    put(tmp_path, log[:120], "a.json")
    defined = pipeline(tmp_path, "changes")
    plan = make_plan(spark, defined)
    assert plan_from_json(plan.to_json()) == plan
    assert read_planned(spark, defined, plan).count() == 120
    assert plan.fidelity == "log_order" and "orders: " in plan.source and len(plan.inputs) == 2
    assert plan.as_of.keys() == {0, 1, 10_000}
    assert [said.split(":")[0] for said in plan.warnings] == ["returns"]  # the other's partitions are registered
    reconcile(spark, defined, LogProgress())
    os.utime(tmp_path / "returns" / "a.json", (1, 1))
    assert reconcile(spark, defined, LogProgress()).note.startswith("a full run: returns: ")
    (tmp_path / "orders" / "a.json").rename(tmp_path / "orders" / "b.json")
    put(tmp_path, log[120:], "c.json")
    assert "orders: " in reconcile(spark, defined, LogProgress()).note
    place = {"o": 900, "a": T0 + 900_000}
    write(tmp_path / "orders", [{"p": 0, **place, "k": "a", "t": None, "v": 1}], "d.json")
    write(tmp_path / "returns", [{"p": 10_000, **place, "shop": "a", "happened": T0, "refund": 1}], "d.json")
    run(spark, defined)
    reasons = {row[0] for row in spark.table(Tables.of(defined).quarantine).select("reason").collect()}
    assert reasons == {"orders: missing event time", "returns: partition 10000 is not below 10000"}
    answer = answer_of(lambda: spark, defined, Question(what=Subject.QUARANTINED), LogProgress())
    assert set(column_of(answer.tables[1], "partition")) == {None, "0 of orders"}
    planned = make_plan(spark, defined)
    print_plan(planned, (), names_of(defined))
    print_reasons(reasons_of(quarantined(read_planned(spark, defined, planned))), names_of(defined))
    said = capsys.readouterr().out
    assert "0 of returns" in said and "first: partition 0 of orders, offset 900" in said


@pytest.mark.long
def test_sessions_of_a_union_are_those_of_one_history_with_all_records(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(5, 150)
    put(tmp_path, log, "a.json")
    defined = pipeline(tmp_path, "sessions", "alike", "{type: session, gap: 15 s}")
    run(spark, defined)
    together = tmp_path / "together"
    together.mkdir()
    rows = [
        {"p": row["p"] + (10_000 if of == "returns" else 0), "o": row["o"], "a": row["a"]}
        | {"k": row.get("k", row.get("shop")), "t": row.get("t", row.get("happened"))}
        | {"v": row.get("v", -row.get("refund", 0))}
        for of, row in log
    ]
    (together / "orders").mkdir()
    write(together / "orders", rows, "a.json")
    text = (tmp_path / "sessions.yaml").read_text()
    one = load_pipeline(together / "one.yaml", text=as_one_history(text, together))
    run(spark, one)
    assert tables_of(spark, defined) == tables_of(spark, one)


def as_one_history(text: str, folder: Path) -> str:
    head, _, tail = text.partition("    - name: returns")
    own = head.split("    - name: orders\n")[1].replace("\n      ", "\n").replace("      history:", "history:")
    own = own.replace("partitions: 2", "subtasks: [[0, 1], [10000]]").replace("/orders/", "/together/orders/")
    return f"name: one_history\n{own}\n{tail[tail.index('window:') :]}"


def test_inputs_that_do_not_fit_together_are_refused_with_the_place(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, log_of(1, 30), "a.json")
    other = pipeline(tmp_path, "types", columns=('v: "-refund"', 'v: "CAST(refund AS STRING)"'))
    with pytest.raises(DefinitionError, match="`v` is BIGINT in orders and STRING in returns"):
        make_plan(spark, other)
    assert [found.field for found in check_expressions(spark, other)] == ["columns.v"]
    lacking = pipeline(tmp_path, "lacking", columns=('      columns: {v: "-refund"}\n', ""))
    assert {found.line for found in check_expressions(spark, lacking)} == {lacking_line(lacking)}
    for file in (tmp_path / "returns").iterdir():
        file.write_text("")
    with pytest.raises(HistoryError, match="an input of the union has no record"):
        make_plan(spark, pipeline(tmp_path, "empty"))


def lacking_line(defined: Pipeline) -> int:
    return int(defined.source_of(("aggregates", "total")).rpartition(":")[2])
