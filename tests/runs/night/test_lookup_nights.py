"""Nights with a lookup: they go on while its table has the same rows, and the tables are those of a full run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.accounts import check_account
from tests.runs.small_nights import CASES, log_of, pipeline, tables_of
from tests.runs.small_runs import MINUTE, T0, write
from tests.sampling import seeds

TABLE = "rewindow.lookups.of_nights"
ROWS = (("a", "north"), ("b", "south"), ("c", "west"))
OTHERS = (("a", "north"), ("b", "east"))


def look_up_in(spark: SparkSession, rows: tuple[tuple[str, str], ...]) -> None:
    """The table with these rows, valid for ever."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lookups")
    values = ", ".join(f"('{key}', '{region}', timestamp_millis(0), CAST(NULL AS TIMESTAMP))" for key, region in rows)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (k STRING, region STRING, since TIMESTAMP, until TIMESTAMP)")
    spark.sql(f"INSERT OVERWRITE {TABLE} SELECT * FROM VALUES {values}")


def looked_up(tmp_path: Path, name: str, seed: int) -> Pipeline:
    file = Path(pipeline(tmp_path, name, list(CASES)[seed % len(CASES)]).file)
    as_of = ("as_of: run", "as_of: event_time, valid_from: since, valid_to: until")[seed // 2 % 2]
    text = file.read_text().replace("keys: {k: k}", f"lookup: {{table: {TABLE}, on: k, {as_of}}}\nkeys: {{r: region}}")
    file.write_text(text + f"mode: {('both', 'faithful')[seed // 3 % 2]}\n")
    return load_pipeline(file)


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_every_night_with_a_lookup_ends_in_the_tables_of_a_full_run(spark, tmp_path, seed) -> None:
    """Between two nights the rows stay in other files, change, or are others only while a part of the range is run."""
    records, draw = log_of(seed, 240), random.Random(seed + 100)
    cuts = sorted([draw.randrange(60, 110), draw.randrange(120, 230), len(records)])
    nightly, done, rows, kinds = looked_up(tmp_path, f"looked_up_{seed}", seed), 0, ROWS, ["stay", "change", "part"]
    draw.shuffle(kinds)
    for night, cut in enumerate(cuts):
        kind = kinds[night] if night else "stay"
        rows = rows if kind != "change" else OTHERS if rows == ROWS else ROWS
        if kind == "part":
            look_up_in(spark, OTHERS if rows == ROWS else ROWS)
            part = make_plan(spark, nightly, start=T0, end=T0 + 2 * MINUTE)
            execute(spark, nightly, part, LogProgress())
        look_up_in(spark, rows)
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        result = reconcile(spark, nightly, LogProgress())
        assert (result.continued_from is not None) == (night > 0 and kind == "stay"), result.note
        check_account(result)
    full = looked_up(tmp_path, f"looked_up_full_{seed}", seed)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
