"""A live job's own functions against Spark's built-in ones, in the same windows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.functions.prepared import aggregates_of, prepare
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import ReplaySpec
from tests.bench.data import dataset
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import Bench, covering, replay_spec
from tests.functions.definitions import defined
from tests.functions.jar import HERE, job_jar

KEYS = 100
_READING = "named_struct('sensor', CAST(key AS STRING), 'at', rw_event_time, 'value', CAST(value AS DOUBLE))"
_PAIRS = {
    "Flink's ScalarFunction in a sum": ("sum(twice(CAST(value AS BIGINT)))", "sum(CAST(value AS BIGINT) * 2)"),
    "Hive's UDAF, a sum": ("old_sum(CAST(value AS BIGINT))", "sum(CAST(value AS BIGINT))"),
    "Table API's AggregateFunction, a weighted mean": (
        "weighted(CAST(value AS DOUBLE), CAST(value AS BIGINT))",
        "sum(CAST(value AS DOUBLE) * CAST(value AS BIGINT)) / sum(CAST(value AS BIGINT))",
    ),
    "DataStream's AggregateFunction, a median": (f"median_of({_READING})", "percentile(value, 0.5)"),
    "Python, a class, the two largest": (
        "py_top(CAST(value AS BIGINT))",
        "slice(sort_array(collect_list(value)), -2, 2)",
    ),
}
_FUNCTIONS = {
    "twice": "{jar: jobs/job.jar, class: job.Twice}",
    "old_sum": "{jar: jobs/job.jar, class: job.OldSum, returns: BIGINT}",
    "weighted": "{jar: jobs/job.jar, class: job.Weighted}",
    "median_of": "{jar: jobs/job.jar, class: job.Median}",
    "py_top": "{python: jobs.words.Top, returns: ARRAY<BIGINT>}",
}


def functions(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 keys, both values: each function as a multiple of what Spark has built in."""
    windows = TumblingWindows(MINUTE)
    data = dataset(bench.spark, bench.home, bench.records)
    history = History(data.canonical(bench.spark, KEYS), data.event_times, data.event_times.end)

    def run(spec: ReplaySpec) -> None:
        with Replay(history, spec) as replay:
            to_nowhere(replay.windows(covering(windows, data.event_times)))

    with tempfile.TemporaryDirectory(prefix="bench-functions-") as folder:
        own = _own_texts(bench, Path(folder) / "project")
        for number, (what, (_, built_in)) in enumerate(_PAIRS.items()):
            specs = {
                name: replace(replay_spec(windows), aggregates={"x": x})
                for name, x in (("own", own[f"x{number}"]), ("built in", built_in))
            }
            contenders = {name: partial(run, spec) for name, spec in specs.items()}
            median = alternate(contenders, min(bench.rounds, 3), bench.log)
            yield Row("functions", f"{what}, {data.records / 1e6:g}M records", median["own"], median["built in"])


def _own_texts(bench: Bench, project: Path) -> Mapping[str, str]:
    """The calls of own functions as Spark computes them, `x0` and so on, from a project with the job's jar."""
    shutil.copytree(HERE / "project", project)
    job_jar(project / "jobs")
    (project / "dags" / "pipelines").mkdir(parents=True)
    calls = {f"x{number}": own for number, (own, _) in enumerate(_PAIRS.values())}
    pipeline = defined(project, "bench_functions", functions=_FUNCTIONS, aggregates=calls, keys="{key: k}")
    prepare(bench.spark, pipeline)
    return aggregates_of(pipeline)
