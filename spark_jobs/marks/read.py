"""Reads a mark, whatever wrote it, and makes the end offsets of a pipeline's history of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.definition.union import of_union
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.marks.flink import METADATA, read_flink
from spark_jobs.marks.folder import LocalFolder, RemoteFolder
from spark_jobs.marks.mark import Mark
from spark_jobs.marks.others import read_group, read_query
from spark_jobs.sources import source_of

Session = Callable[[], SparkSession]
"""Starts Spark, which a Flink checkpoint on this machine does not need."""


def read_mark(session: Session, where: str, topic: Callable[[], TopicAccess | None]) -> Mark:
    """The mark at a path, or of a consumer group.

    `topic`: where to ask about a group; None: nobody knows its brokers.

    Raises SourceError where it is not there, is damaged or of another program; DefinitionError where the brokers of a
    group are not known.
    """
    path = Path(where.removeprefix("file://"))
    if path.exists():
        local = LocalFolder(path.parent if path.name == METADATA else path)
        if (mark := read_flink(local)) is not None:
            return mark
        if path.is_dir():
            return read_query(session(), where)
        raise SourceError("it is no checkpoint", where, "Name the folder of a checkpoint or savepoint.")
    if "://" in where:
        remote = RemoteFolder(session(), where.removesuffix(f"/{METADATA}"))
        if (mark := read_flink(remote)) is not None:
            return mark
        try:
            return read_query(session(), where)
        except SourceError as problem:
            raise SourceError(problem.what, problem.where, f"{problem.hint} Flink's has `{METADATA}`.") from problem
    if "/" in where:
        raise SourceError("there is no such folder", where, "Name the folder of a checkpoint, or a consumer group.")
    access = topic()
    if access is None:
        raise DefinitionError(
            f"{where} is no folder, and of a consumer group the brokers must be known",
            hint="Add --pipeline with a definition whose history is the topic.",
        )
    return read_group(session(), access, where)


def topic_of(spark: SparkSession, pipeline: Pipeline) -> TopicAccess | None:
    """A topic that the pipeline's history reads, of a union the first one."""
    topics = (source_of(spark, one).topic() for one in pipeline.inputs or (pipeline,))
    return next((topic for topic in topics if topic is not None), None)


def ends_of_mark(session: Session, pipeline: Pipeline, where: str) -> dict[int, int]:
    """The end offsets (exclusive) that a mark gives a pipeline's history, by partition.

    Raises as `read_mark`, and DefinitionError where the mark is of a job that reads other topics, or lacks a partition.
    """
    mark = read_mark(session, where, lambda: topic_of(session(), pipeline))
    return ends_in(session(), pipeline, mark)


def ends_in(spark: SparkSession, pipeline: Pipeline, mark: Mark) -> dict[int, int]:
    """The end offsets (exclusive) that a mark gives a pipeline's history, by partition.

    Raises DefinitionError where the mark is of a job that reads other topics.
    """
    ends: dict[int, int] = {}
    for number, one in enumerate(pipeline.inputs or (pipeline,)):
        topic = source_of(spark, one).topic()
        if topic is None:
            raise DefinitionError(
                "the history is no topic, so the offsets of a mark say nothing of it", one.name,
                "Write --as-of as partition=offset pairs: 0=120,1=95.",
            )  # fmt: skip
        own = mark.ends(topic.topic)
        ends |= of_union(own, number) if pipeline.inputs else own
    return ends
