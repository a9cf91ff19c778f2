"""Checkpoints of live jobs in an object store: they are read as those on disk are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import SourceError
from spark_jobs.marks.flink import flink_jvm, read_flink
from spark_jobs.marks.folder import LocalFolder
from spark_jobs.marks.read import read_mark
from spark_jobs.sources.checkpoint import checkpoint_files, read_once
from tests.marks.flink_checkpoint import SUBTASKS, checkpoint
from tests.services.object_store import BUCKET, S3A, client, object_store, s3a_of

pytestmark = [pytest.mark.long, pytest.mark.packages(S3A)]


def test_a_query_s_checkpoint_is_read_by_its_address(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n")
    checkpoint = tmp_path / "checkpoint"
    query = spark.readStream.text(str(tmp_path / "in")).writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    on_disk = read_once(spark, checkpoint_files(spark, str(checkpoint)))
    assert on_disk.commits

    with object_store(tmp_path) as at, s3a_of(spark, *at):
        files = client(*at)
        for file in checkpoint.rglob("*"):
            if file.is_file():
                files.upload_file(str(file), BUCKET, f"queries/q/{file.relative_to(checkpoint)}")
        address = f"s3a://{BUCKET}/queries/q"
        assert read_once(spark, checkpoint_files(spark, address)) == on_disk
        assert read_mark(lambda: spark, address, lambda: None).number == max(on_disk.commits)

        with pytest.raises(SourceError, match=r"the checkpoint cannot be read: .*Path does not exist"):
            read_mark(lambda: spark, f"s3a://{BUCKET}/savepoint-1", lambda: None)


def test_a_flink_checkpoint_is_read_by_its_address(spark: SparkSession, tmp_path: Path) -> None:
    with flink_jvm() as jvm:
        folder = checkpoint(jvm, tmp_path / "chk-7", SUBTASKS)
    on_disk = read_flink(LocalFolder(folder))
    with object_store(tmp_path) as at, s3a_of(spark, *at):
        files = client(*at)
        for file in folder.iterdir():
            files.upload_file(str(file), BUCKET, f"jobs/j/{file.name}")
        address = f"s3a://{BUCKET}/jobs/j"
        for where in (address, f"{address}/_metadata"):
            mark = read_mark(lambda: spark, where, lambda: None)
            assert (mark.where, mark.number, mark.offsets) == (address, 7, on_disk.offsets)
        files.delete_object(Bucket=BUCKET, Key="jobs/j/state-1")
        (folder / "state-1").unlink()
        with pytest.raises(SourceError, match="the state file state-1 is missing"):
            read_mark(lambda: spark, address, lambda: None)
        files.put_object(Bucket=BUCKET, Key="jobs/j/_metadata", Body=b"not Flink's")
        with pytest.raises(SourceError, match="is damaged, or a newer Flink wrote it"):
            read_mark(lambda: spark, address, lambda: None)
