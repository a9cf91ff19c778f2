"""Records that only a checkpoint of a Flink SQL job decides: what the plan says of them, and what their windows get."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from spark_jobs.cli import output
from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.replay.defined_windows import slices_of, windows_of
from spark_jobs.replay.flink.rules import FlinkRules
from spark_jobs.replay.from_pipeline import strategy_of
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.runs.planning.plan_document import Undecided
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import good
from tests.replay.flights import definition
from tests.runs.small_runs import T0, definition_text, write
from tests.sequential.flink import LiveJob, Record

SUBTASKS = "generator: lag, lag: 0 s, subtasks: [[0], [1]]"
LIVE = """
live:
  source: {{kind: files, path: "{folder}/live/*.parquet", format: parquet}}
  window: {{start: s, unit: ms}}
"""
# Record 30 is behind its own subtask's watermark, 65, and in front of the minimum, 50.
TIMES = [(1, 50), (0, 65), (0, 30), (1, 62), (0, 130), (1, 131)]
COUNTED, MINUTES = {1: 0, 0: 1}, [T0, T0 + 60_000, T0 + 120_000]


def records() -> list[dict]:
    offsets = {0: 0, 1: 0}
    rows = []
    for number, (partition, second) in enumerate(TIMES):
        arrival, time = T0 + 10_000 * number, T0 + 1000 * second
        rows.append({"p": partition, "o": offsets[partition], "a": arrival, "k": "k", "t": time, "v": 2**number})
        offsets[partition] += 1
    return rows


def job(folder: Path, name: str, more: str = "", section: str = "{}", aggregates: str = "n: count(*)") -> Pipeline:
    window = f"window: {{type: tumbling, size: 1 min}}\nflink_sql: {section}"
    path = folder / f"{name}.yaml"
    text = definition_text(name, folder / "data", watermark=SUBTASKS, window=window, aggregates=aggregates)
    path.write_text(text + LIVE.format(folder=folder) + more)
    write(folder / "data", records())
    return load_pipeline(path)


def emitted(folder: Path, first: dict, offsets: dict[int, int] | None = None) -> None:
    """The live job's rows; `first`: the values of the first window, `offsets`: its evidence."""
    values = [first, dict.fromkeys(first, 2) if "n" in first else {"top": 8}, {}]
    rows = [{"k": "k", "s": start, **value} for start, value in zip(MINUTES, values, strict=True) if value]
    for row, last in zip(rows, [offsets, {0: 1, 1: 1}], strict=False):
        row["last"] = list(last.items()) if last is not None else None
    columns = [*first, "s"]
    schema = pa.schema(
        [("k", pa.string()), *((c, pa.int64()) for c in columns), ("last", pa.map_(pa.int32(), pa.int64()))]
    )
    (folder / "live").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "live" / "rows.parquet")


def verdict_of_first(spark, defined: Pipeline) -> tuple[str, str | None]:
    """The first window's verdict and label; what is right is not listed."""
    report = run_compare(spark, defined, NoProgress(), limit=100)
    for row in report.top:
        if row["window_start"].endswith(":27:00Z"):
            return row["verdict"], row["label"]
    return "match", None


@pytest.mark.parametrize(
    ("first", "aggregates", "verdict"),
    [
        ({"n": 2}, "n: count(*)", ("undecided", "held_back")),
        ({"n": 7}, "n: count(*)", ("mismatch", "no_admissible_cut")),
        ({"top": 4}, "top: max(v)", ("undecided", "nothing_to_fit")),
    ],
    ids=["a checkpoint counted it", "no checkpoint explains it", "a value that cannot be fitted"],
)
def test_a_window_that_a_checkpoint_may_explain_is_undecided(
    spark, tmp_path: Path, first: dict, aggregates: str, verdict: tuple[str, str]
) -> None:
    emitted(tmp_path, first)
    assert verdict_of_first(spark, job(tmp_path, "undecided", aggregates=aggregates)) == verdict


@pytest.mark.parametrize(
    ("first", "offsets", "verdict"),
    [
        ({"n": 2}, {0: 1, 1: 0}, "match"),
        ({"n": 1}, {1: 0}, "late_arrivals"),
        ({"n": 2}, {1: 0}, "mismatch"),
    ],
    ids=["counted", "not counted", "a value of other records"],
)
def test_evidence_decides_what_only_a_checkpoint_does(
    spark, tmp_path: Path, first: dict, offsets: dict[int, int], verdict: str
) -> None:
    emitted(tmp_path, first, offsets)
    assert verdict_of_first(spark, job(tmp_path, "decided", "  last_offsets: last\n"))[0] == verdict


def test_the_plan_says_how_many_records_only_a_checkpoint_decides(spark, tmp_path: Path, monkeypatch) -> None:
    plan = make_plan(spark, job(tmp_path, "planned"), counts_undecided=True)
    assert plan.undecided == Undecided(records=1, windows=1)
    assert json.loads(plan.to_json())["undecided"] == {"records": 1, "windows": 1}
    said = "1 record of 1 window can be undecided: only the live job's checkpoints say whether they were counted"
    assert said in plan.fidelity_reasons
    shown = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=shown, width=300))
    output.print_plan(plan, ())
    assert said in shown.getvalue()


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("{checkpoint_interval: 5 s}", Undecided(0, 0)),
        ("{checkpoint_interval: 1 min}", Undecided(1, 1)),
        ("{aggregation: one_phase}", None),
    ],
)
def test_a_checkpoint_interval_narrows_what_the_plan_says(spark, tmp_path: Path, section: str, found: object) -> None:
    plan = make_plan(spark, job(tmp_path, "narrowed", section=section), counts_undecided=True)
    assert plan.undecided == found
    assert bool(found == Undecided(1, 1)) == any("undecided" in reason for reason in plan.fidelity_reasons)


def of_flights(folder: Path, section: str) -> Pipeline:
    """The recorded hourly job over real flights, as a query of Flink SQL whose subtasks read a partition each."""
    bound = re.compile(r"  generator: bounded_out_of_orderness\n  bound: .*")
    text = bound.sub("  generator: lag\n  lag: 30 min\n  subtasks: [[0], [1], [2]]", definition("hourly"))
    path = folder / "flights.yaml"
    path.write_text(f"{text}flink_sql: {section}\n")
    return load_pipeline(path)


def counted_in(defined: Pipeline, records: list[Record], partitions: list[int]) -> int:
    """How many records the live job counts, in the engine that takes one at a time."""
    slices = slices_of(defined)
    result = LiveJob(strategy_of(defined, partitions), windows_of(defined), 0, slices=slices).run(records, flush=True)
    return sum(firing.count for _, firing in result.firings)


@pytest.mark.long
def test_the_plan_of_real_flights_says_how_many_records_the_subtasks_hold_back(spark, tmp_path, monkeypatch) -> None:
    defined = of_flights(tmp_path, "{}")
    ends = dict.fromkeys(range(3), 2_500)
    plan = make_plan(spark, defined, as_of=ends, counts_undecided=True)
    rows = good(read_planned(spark, defined, plan)).orderBy("rw_arrival", "rw_partition", "rw_offset").collect()
    columns = ("rw_partition", "rw_offset", "rw_arrival", "carrier", "rw_event_time")
    records = [Record(*(row[name] for name in columns)) for row in rows]
    partitions = [p.partition for p in plan.partitions]
    in_one = counted_in(of_flights(tmp_path, "{aggregation: one_phase}"), records, partitions)
    assert plan.undecided is not None
    assert plan.undecided.records == in_one - counted_in(defined, records, partitions) > 0
    monkeypatch.setattr(FlinkRules, "is_undecided", lambda *given: None)
    assert make_plan(spark, defined, as_of=ends, counts_undecided=True).undecided == Undecided(0, 0), (
        "a fault in the rule is not seen"
    )
