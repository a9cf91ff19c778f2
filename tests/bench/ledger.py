"""What thousands of runs cost the next one: plan, night, publication and the list, after 10 runs and after 10,000."""

from __future__ import annotations

import json
import secrets
import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.lakehouse.tables import Tables, drop_table
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.web.runs import Runs
from tests.bench.data import MIDNIGHT
from tests.bench.measure import Row, alternate
from tests.bench.workload import Bench

FEW, MANY = 10, 10_000
TARGET = "<= 1.2"
RECORDS_A_NIGHT = 200


@dataclass(slots=True)
class _Project:
    """A small pipeline with a ledger of `runs` published runs, and the folder of each."""

    pipeline: Pipeline
    folder: Path
    store: RunStore
    runs: Runs
    nights: int = 0
    version: int = 0

    def arrive(self) -> None:
        """Records of the next night."""
        first = self.nights * RECORDS_A_NIGHT
        rows = (
            {"p": n % 2, "o": n // 2, "a": MIDNIGHT + n * 1000, "t": MIDNIGHT + n * 1000 - (n % 7) * 1000, "v": n}
            for n in range(first, first + RECORDS_A_NIGHT)
        )
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / f"part-{self.nights:05}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.nights += 1


def ledger(bench: Bench) -> Iterator[Row]:
    """The same work in two projects that differ in the number of their runs alone.

    First of nights, each over the whole history; then of runs over a minute each, which no later run covers.
    """
    yield from _compared(bench, "nights", ("plan", "night", "publication of a range", "list of runs"))
    yield from _compared(bench, "ranges", ("publication of a range",))


def _compared(bench: Bench, kind: str, measured: Sequence[str]) -> Iterator[Row]:
    few, many = (_project(bench, runs, of_ranges=kind == "ranges") for runs in (FEW, MANY))
    spark, rounds = bench.spark, max(bench.rounds, 5)
    try:

        def planned(one: _Project) -> None:
            make_plan(spark, one.pipeline)

        def night(one: _Project) -> None:
            one.arrive()
            reconcile(spark, one.pipeline, NoProgress(), store=one.store)

        def published(one: _Project) -> None:
            one.version += 1  # so that each window changes
            pipeline = _pipeline(one.folder, one.pipeline.output.namespace, one.version)
            end = MIDNIGHT + MINUTE if kind == "ranges" else None
            plan = make_plan(spark, pipeline, start=end and MIDNIGHT, end=end)
            execute(spark, pipeline, plan, NoProgress(), store=one.store)

        def listed(one: _Project) -> None:
            one.runs.all()

        steps: dict[str, Callable[[_Project], None]] = {
            "plan": planned,
            "night": night,
            "publication of a range": published,
            "list of runs": listed,
        }
        for what in measured:
            step = steps[what]
            bench.log(f"{kind}: {what}")
            median = alternate(
                {"many": lambda step=step: step(many), "few": lambda step=step: step(few)}, rounds, bench.log
            )
            yield Row("ledger", f"{kind}: {what}, {MANY:,} runs against {FEW}", median["many"], median["few"], TARGET)
        for one in (few, many):
            peak = _driver_memory(lambda one=one: published(one))
            bench.log(f"{kind}: a publication takes {peak:.1f} MiB of the driver's Python at most")
    finally:
        for one in (few, many):
            tables = Tables.of(one.pipeline)
            for table in (tables.windows, tables.late, tables.quarantine, tables.runs, tables.timeline_state):
                if spark.catalog.tableExists(table):
                    drop_table(spark, table)
            shutil.rmtree(one.folder, ignore_errors=True)


def _driver_memory(work: Callable[[], None]) -> float:
    """The MiB that Python takes for `work`, at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()


def _project(bench: Bench, runs: int, *, of_ranges: bool) -> _Project:
    """One night, and its row of the ledger and its folder so many times, as `maintain` leaves them: in one file.

    With `of_ranges` none of them covers the whole history: each has a minute of its own.
    """
    spark, token = bench.spark, secrets.token_hex(3)
    folder = bench.home / "bench" / f"ledger_{runs}_{token}"
    store = RunStore(str(folder / "runs"))
    one = _Project(_pipeline(folder, f"ledger_{runs}_{token}"), folder, store, Runs(store))
    bench.log(f"a project with {runs:,} runs")
    one.arrive()
    first = reconcile(spark, one.pipeline, NoProgress(), store=store)
    tables = Tables.of(one.pipeline)
    known = spark.table(tables.runs)
    number = F.col("rw_number")
    earlier = known.crossJoin(spark.range(1, runs).withColumnRenamed("id", "rw_number")).withColumns(
        {
            "run_id": F.format_string("night-%05d", number),
            "whole": F.lit(not of_ranges),
            **{
                at: F.expr(f"{at} - make_dt_interval(0, rw_number)")
                for at in ("started_at", "finished_at", "heartbeat_at")
            },
        }
    )
    if of_ranges:
        minute = F.expr("make_dt_interval(0, 0, rw_number)")
        from_midnight = F.timestamp_millis(F.lit(MIDNIGHT)) + minute
        earlier = earlier.withColumn("range_start", from_midnight)
        earlier = earlier.withColumn("range_end", F.col("range_start") + F.expr("make_dt_interval(0, 0, 1)"))
        spark.sql(f"UPDATE {tables.runs} SET whole = false")
    earlier.select(known.columns).coalesce(1).writeTo(tables.runs).append()
    documents = {name: store.folder(first.run_id).read_bytes(name) for name in ("request.json", "outcome.json")}
    documents["changes.json"] = store.folder(first.run_id).read_bytes("changes.json")
    for copy in range(1, runs):
        place = folder / "runs" / f"night-{copy:05}"
        place.mkdir()
        for name, data in documents.items():
            (place / name).write_bytes(data or b"{}")
    return one


def _pipeline(folder: Path, namespace: str, version: int = 0) -> Pipeline:
    position = {"partition": "p", "offset": "o", "arrival": "a", "arrival_unit": "ms"}
    return Pipeline.model_validate(
        {
            "name": "nights",
            "history": {"kind": "files", "path": f"{folder}/data/*.json", "format": "json", "position": position},
            "value": {"schema": "p INT, o BIGINT, a BIGINT, t BIGINT, v BIGINT"},
            "keys": {"key": "v % 5"},
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {
                "generator": "bounded_out_of_orderness",
                "bound": 5000,
                "emission": "per_event",
                "partitions": [0, 1],
            },
            "window": {"type": "tumbling", "size": MINUTE},
            "aggregates": {"n": "count(*)", "total": f"sum(v) + {version}"},
            "output": {"namespace": namespace},
        }
    )
