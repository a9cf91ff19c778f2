"""A small pipeline whose live job has late, wrong, lost and surplus rows, in a table or a topic that is put right."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison import stage
from spark_jobs.corrections.topic import HEADER
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import good
from tests.runs.small_nights import log_of, pipeline
from tests.runs.small_runs import write

CASE = "sliding, lateness, frozen"
COMPARING = EndPolicy(compare=stage.compare_run)
_AT_FIRST, _IN_ALL = 220, 300


def defined(folder: Path, name: str, sections: str) -> Pipeline:
    """The pipeline with the sections `live:` and `corrections:`, and some minutes of records, late ones among them."""
    path = Path(pipeline(folder, name, CASE).file or "")
    path.write_text(path.read_text() + sections)
    write(folder / "data", log_of(7, count=_AT_FIRST), "part-0.json")
    return load_pipeline(path)


def later_records(folder: Path) -> None:
    """More records arrive, some of them late for windows that have closed."""
    write(folder / "data", log_of(7, count=_IN_ALL)[_AT_FIRST:], "part-1.json")


def emitted_rows(spark: SparkSession, pipeline: Pipeline) -> list[dict]:
    """The rows that a faultless live job has emitted: `k`, `window_start` (epoch ms), `n`, `total`, and its values."""
    plan = make_plan(spark, pipeline)
    records = good(read_planned(spark, pipeline, plan))
    spec = spec_of(pipeline, [p.partition for p in plan.partitions])
    with Replay(History(records, plan.event_times, plan.processing_time_end), spec) as replay:
        closed = replay.with_last_panes().windows(plan.span).where("state = 'closed'").collect()
    rows = [{"k": r["k"], "window_start": r["window_start"], "n": r["n"], "total": r["total"]} for r in closed]
    return sorted(rows, key=lambda row: (row["window_start"], row["k"] or ""))


def with_faults(rows: list[dict]) -> list[dict]:
    """Of the rows one is lost and one is wrong."""
    wrong, _, *rest = rows
    return [wrong | {"n": wrong["n"] + 100}, *rest]


def write_table(spark: SparkSession, table: str, rows: list[dict], total: str = "BIGINT") -> None:
    schema = f"k STRING, s BIGINT, n BIGINT, total {total}"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], schema)
    placed = frame.select("k", F.timestamp_millis("s").alias("window_start"), "n", "total")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    placed.writeTo(table).createOrReplace()


def published(spark: SparkSession, pipeline: Pipeline) -> RunResult:
    """A run over all windows, with its comparison."""
    return execute(spark, pipeline, make_plan(spark, pipeline), NoProgress(), end_policy=COMPARING)


def counts_of(run: RunResult) -> dict[str, int]:
    """Windows by verdict, as the run's comparison found them."""
    verdicts = Verdicts.read(RunStore.configured().folder(run.run_id))
    assert verdicts is not None and verdicts.problem is None
    return verdicts.counts


def read(spark: SparkSession, servers: str, topic: str) -> list[Row]:
    """What readers of a topic see: `partition`, `offset`, `key`, `value`; `delivery`: the id that a correction has."""
    frame = spark.read.format("kafka").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"},
        **{"kafka.isolation.level": "read_committed"},
    )
    header = F.expr(f"CAST(filter(headers, h -> h.key = '{HEADER}')[0].value AS STRING)")
    text = [F.col(c).cast("string").alias(c) for c in ("key", "value")]
    return (
        frame.load()
        .select("partition", "offset", *text, header.alias("delivery"))
        .orderBy("partition", "offset")
        .collect()
    )
