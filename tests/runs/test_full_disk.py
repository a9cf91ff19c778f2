"""A disk that fills while a run writes: a short message, the published tables as they were, and a rerun that mends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.session import spark_session
from tests.runs.small_runs import contents, pipeline, record, write
from tests.services.small_disk import fill, small_file_system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", mebibytes=4) as folder:
        yield folder


def test_a_full_disk_is_said_in_a_line_and_a_rerun_ends_as_if_nothing_had_been(spark, tmp_path, small_disk) -> None:
    session = spark_session("tests", home=small_disk)
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "cramped")
    execute(session, defined, make_plan(session, defined), NoProgress())
    before = contents(session, defined)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")
    filler = small_disk / "filler"
    fill(filler)
    with pytest.raises(CatalogError, match="the disk is full") as refused:
        execute(session, defined, make_plan(session, defined), NoProgress())
    assert "\n" not in str(refused.value)
    assert contents(session, defined) == before
    filler.unlink()
    execute(session, defined, make_plan(session, defined), NoProgress())
    undisturbed = pipeline(tmp_path, "roomy")
    execute(spark, undisturbed, make_plan(spark, undisturbed), NoProgress())
    told_by_run = ("revision", "cause")
    ours = session.table(Tables.of(defined).windows).drop(*told_by_run, "run_id", "as_of", "valid_from", "valid_to")
    theirs = spark.table(Tables.of(undisturbed).windows).select(ours.columns)
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
