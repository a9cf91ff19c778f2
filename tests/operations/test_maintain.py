"""Housekeeping changes no value that anybody reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark_jobs.errors import EmptyRangeError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.progress import NoProgress
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of, write


def test_housekeeping_keeps_every_value_and_lets_the_nights_go_on(spark, tmp_path) -> None:
    defined = pipeline(tmp_path, "tidy", "tumbling, per event")
    later = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(EmptyRangeError, match="no run has published"):
        maintain(spark, defined, NoProgress(), now=later)
    records = log_of(5, count=300)
    for night, start in enumerate((0, 100)):
        write(tmp_path / "data", records[start : start + 100], f"part-{night}.json")
        reconcile(spark, defined, NoProgress())
    facts = PublishedTable(spark, Tables.of(defined).windows)
    before = tables_of(spark, defined)
    revisions = sorted(map(repr, facts.revisions().collect()))
    done = maintain(spark, defined, NoProgress(), now=later, keep_snapshots=timedelta(0))
    assert done.snapshots_expired[facts.table] > 0 and done.revisions_deleted == 0
    assert tables_of(spark, defined) == before
    assert sorted(map(repr, facts.revisions().collect())) == revisions
    lying = spark.sql(f"SELECT _file, window_start FROM {facts.table} ORDER BY _file, _pos").collect()
    assert done.files_compacted[facts.table] > 0 and lying == sorted(lying)
    write(tmp_path / "data", records[200:], "part-2.json")
    assert reconcile(spark, defined, NoProgress()).continued_from is not None
    assert_history_is_whole(spark, defined)

    superseded = facts.revisions().where("valid_to IS NOT NULL").count()
    done = maintain(spark, defined, NoProgress(), now=later, keep_revisions=timedelta(0))
    assert done.revisions_deleted == superseded > 0
    assert facts.revisions().where("valid_to IS NOT NULL").isEmpty()
