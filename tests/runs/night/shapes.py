"""Small definitions of the shapes of jobs whose nights go on: sessions, duplicates, lookups, restarts."""

from __future__ import annotations

import random
import re
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from tests.runs.small_nights import CASES, TICKS, pipeline
from tests.runs.small_runs import BOUNDED
from tests.runs.small_runs import pipeline as small_pipeline

BY_RECORD = "gap_expression: 'CASE WHEN v % 3 = 0 THEN 9000 ELSE 2000 END'"
GAPS = ("gap: 3 s", "gap: 8 s", "gap: 20 s", BY_RECORD)


def sessions(tmp_path: Path, name: str, seed: int) -> Pipeline:
    draw = random.Random(seed)
    lateness, panes = draw.choice(("0 s", "15 s", "3 min")), draw.choice(("last", "last", "all"))
    emission = draw.choice(("emission: per_event", TICKS))
    return small_pipeline(
        tmp_path,
        name,
        end=draw.choice(("flush", "freeze")),
        window=f"window: {{type: session, {GAPS[seed % len(GAPS)]}}}\nallowed_lateness: {lateness}\npanes: {panes}",
        watermark=f"{BOUNDED}, {emission}",
        aggregates="n: count(*), total: sum(v), top: max(v)",
        namespace="nightly_tests",
    )


KINDS = (
    "{by: [k, v], kind: processing_time}",
    "{by: [k, v], kind: processing_time, within: 20 s}",
    "{by: [k, v], kind: processing_time, within: 40 s, update_type: on_read_and_write}",
    "{by: v}",
    "{by: v, within: 30 s}",
)


def with_copies(draw: random.Random, records: list[dict], without_time: float = 0) -> list[dict]:
    """The records of a log, of which every fourth comes again soon, every eighth much later, some with other times.

    `without_time`: the share of copies that have none.
    """
    sent = []
    for one in records:
        sent.append(one)
        for chance, delays in ((0.25, (500, 12_000)), (0.12, (20_000, 200_000))):
            if draw.random() < chance:
                moved = draw.choice((0, 0, 0, -3000, 3000))
                again = {"a": one["a"] + draw.randrange(*delays), "p": draw.randrange(2)}
                has_time = one["t"] is not None and not (without_time and draw.random() < without_time)
                sent.append(one | again | {"t": one["t"] + moved if has_time else None})
    sent.sort(key=lambda one: one["a"])
    reached = [0, 0]
    for one in sent:
        one["o"] = reached[one["p"]]
        reached[one["p"]] += 1
    return sent


def deduplicated(tmp_path: Path, name: str, seed: int) -> Pipeline:
    file = Path(pipeline(tmp_path, name, list(CASES)[seed % len(CASES)]).file)
    mode = random.Random(seed).choice(("both", "faithful"))
    text, kind = file.read_text(), KINDS[seed % len(KINDS)]
    if "processing_time" not in kind:  # by row time no record is late for its window
        text = re.sub("allowed_lateness: .*\n", "", text)
    file.write_text(text + f"deduplicate: {kind}\nmode: {mode}\n")
    return load_pipeline(file)


TABLE = "rewindow.lookups.of_nights"
ROWS = {"a": "north", "b": "south", "c": "west"}


def look_up_in(spark: SparkSession, rows: dict[str, str], *, later: bool = False) -> None:
    """The table with these regions by key, valid for ever; with `later`, `a` has another one from the year 2096 on."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lookups")
    then = {key: "timestamp_millis(4000000000000)" if later and key == "a" else "NULL" for key in rows}
    values = [f"('{key}', '{region}', timestamp_millis(0), {then[key]})" for key, region in rows.items()]
    values += [f"('a', 'later', {then['a']}, NULL)"] * later
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (k STRING, region STRING, since TIMESTAMP, until TIMESTAMP)")
    spark.sql(f"INSERT OVERWRITE {TABLE} SELECT * FROM VALUES {', '.join(values)}")


def is_timed(seed: int) -> bool:
    return seed // 2 % 2 == 1


def looked_up(tmp_path: Path, name: str, seed: int) -> Pipeline:
    file = Path(pipeline(tmp_path, name, list(CASES)[seed % len(CASES)]).file)
    as_of = "as_of: event_time, valid_from: since, valid_to: until" if is_timed(seed) else "as_of: run"
    text = file.read_text().replace("keys: {k: k}", f"lookup: {{table: {TABLE}, on: k, {as_of}}}\nkeys: {{r: region}}")
    accepts = "filter: {before_watermark: \"coalesce(region, '') not in ('meanwhile', 'east 2')\"}\n" * (seed // 6 % 2)
    file.write_text(text + f"mode: {('both', 'faithful')[seed // 3 % 2]}\n{accepts}")
    return load_pipeline(file)


LIVE = """
live:
  source: {{kind: files, path: {folder}, format: parquet}}
  window: {{start: s, end: e, unit: ms}}
  restarts: [{restarts}]
"""


def restarted(tmp_path: Path, name: str, case: str, restarts: list[int]) -> Pipeline:
    file = Path(pipeline(tmp_path, name, case).file)
    times = ", ".join(f"'{format_instant(at)}'" for at in restarts)
    file.write_text(file.read_text() + LIVE.format(folder=tmp_path / "emitted", restarts=times))
    return load_pipeline(file)
