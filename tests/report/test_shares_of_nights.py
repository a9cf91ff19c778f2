"""Shares of late records in a night's report: its late records, of those that came since the run before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.report.counted import Facts
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.evaluation import EndPolicy
from spark_jobs.runs.work.progress import NoProgress
from tests.runs import small_applications, small_unions, streaming_nights
from tests.runs.small_nights import log_of
from tests.runs.small_nights import pipeline as flink_pipeline
from tests.runs.small_runs import write
from tests.runs.streaming_nights import SECOND, WrittenQuery, batches_of

HOUR = 3_600_000
Night = tuple[Callable[[], object], list[dict]]


def flink(folder: Path) -> tuple[Pipeline, list[Night]]:
    log = log_of(7)
    parts = [log[:400], log[400:]]
    written = [(lambda n=n, part=part: write(folder / "data", part, f"part-{n}.json")) for n, part in enumerate(parts)]
    return flink_pipeline(folder, "shares_flink", "tumbling, per event"), list(zip(written, parts, strict=True))


def kafka_streams(folder: Path) -> tuple[Pipeline, list[Night]]:
    log = [r | {"k": r["k"] or "c"} for r in log_of(7)]
    parts = [log[:400], log[400:]]
    written = [(lambda n=n, part=part: write(folder / "data", part, f"part-{n}.json")) for n, part in enumerate(parts)]
    defined = small_applications.defined(folder / "data", "shares_streams", small_applications.APPLICATIONS[1])
    return defined, list(zip(written, parts, strict=True))


def union(folder: Path) -> tuple[Pipeline, list[Night]]:
    log = [r | {"k": r["k"] or "c"} for r in log_of(7)]
    back = [
        {"p": 0, "o": o, "a": at["a"], "shop": "a", "happened": at["a"], "refund": 1}
        for o, at in enumerate((log[399], log[-1]))
    ]
    parts = [log[:400], log[400:]]

    def arrive(night: int) -> None:
        write(folder / "orders", parts[night], f"part-{night}.json")
        write(folder / "returns", [back[night]], f"part-{night}.json")

    new = [*parts[1], back[1] | {"p": 2, "t": back[1]["happened"]}]
    return small_unions.pipeline(folder, "shares_union"), [(lambda: arrive(0), []), (lambda: arrive(1), new)]


def structured_streaming(folder: Path) -> tuple[Pipeline, list[Night]]:
    draw = random.Random("shares")
    records = streaming_nights.records_of(draw, 300)
    batches = batches_of(draw, records, 10 * SECOND)
    query = WrittenQuery(folder, records, batches)
    cut = 2 * len(batches) // 3
    new = [r for r in records if r["o"] >= batches[cut - 1].ends[r["p"]] and r["t"] is not None]
    return streaming_nights.defined(query, "shares_query", "tumbling", "append", "last"), [
        (lambda: query.go_on(cut, pending=False, ahead=0), []),
        (lambda: query.go_on(len(batches), pending=False, ahead=0), new),
    ]


@pytest.mark.long
@pytest.mark.parametrize("engine", [flink, kafka_streams, structured_streaming, union])
def test_shares_of_a_night_are_its_late_records_of_its_new_ones(
    spark: SparkSession, tmp_path: Path, engine: Callable[[Path], tuple[Pipeline, list[Night]]]
) -> None:
    defined, nights = engine(tmp_path)
    for arrive, _ in nights:
        arrive()
        result = reconcile(spark, defined, NoProgress(), end_policy=EndPolicy(collector=gather))
    assert "a full run" not in result.note
    facts = Facts.model_validate(RunStore.configured().folder(result.run_id).read("facts.json"))
    assert facts.late is not None
    new = nights[-1][1]
    rows = spark.table(Tables.of(defined).late).where(f"run_id = '{result.run_id}'").collect()
    late = [row for row in rows if row["side_output"]]
    assert 0 < len(late) < len(new)
    assert facts.advisor is None or facts.advisor.records > len(new)  # it looks at those of the first night too
    assert facts.late.basis == len(new) and facts.late.records == len(late)
    of_partitions = {g.partition: (g.records, g.late_in_basis) for g in facts.late.by_partition}
    assert sorted(n for n, _ in of_partitions.values()) == sorted(Counter(r["p"] for r in new).values())
    late_of_partitions = Counter(row["partition"] for row in late)
    assert {p: n for p, (_, n) in of_partitions.items() if n} == late_of_partitions
    of_hours = Counter(r["t"] // HOUR % 24 for r in new)
    late_of_hours = Counter(row["event_time"].hour for row in late)
    assert {g.hour: (g.records, g.late_in_basis) for g in facts.late.by_hour} == {
        hour: (of_hours[hour], late_of_hours[hour]) for hour in range(24)
    }
