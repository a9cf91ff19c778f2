"""The files that a Structured Streaming query reads itself: the log of its file source gives their records a position.

There is one partition, 0. The files are numbered in the order of the log, which only grows at its end, so that the
records of a batch lie between two files. Offset: the file's number times `ROWS`, plus the record's number in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.spark import StreamingWatermark, query_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.spark.checkpoint import SourceFile
from spark_jobs.pins import PinnedFile
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.sources.checkpoint import checkpoint_files, read_once
from spark_jobs.spark.failures import plain_path

ROWS = 1 << 40
"""More than the records of any file."""
_PATH, _NUMBER, _BLOCK, _READ = "rw_path", "rw_file", "rw_block", "rw_read"


def file_source(sources: Collection[str], pipeline: Pipeline, watermark: StreamingWatermark) -> str | None:
    """The file source that reads the history, of those of the checkpoint. Raises DefinitionError.

    None: there is none, and complete values need no order.
    """
    if not sources and pipeline.mode is Mode.COMPLETE:
        return None
    chosen = [source for source in sources if watermark.source in (None, source)]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        what = "several sources of the query read files"
        hint = f"They are {', '.join(sorted(chosen))}. Name one under `watermark.source`."
    else:
        what = "no source of the query reads files, and the history's records have no position"
        known = f"Sources that read files: {', '.join(sorted(sources)) or 'none'}. "
        hint = f"{known}Where the files are an archive of the query's topic, name the columns: history.position."
    raise DefinitionError(what, pipeline.source_of(("watermark",)) or pipeline.name, hint)


def files_read(spark: SparkSession, pipeline: Pipeline) -> tuple[SourceFile, ...] | None:
    """The files that the query has listed, in the order of its log; None where it reads none itself.

    Raises SourceError where the checkpoint cannot be read, DefinitionError where it has no such source.
    """
    if not pipeline.has_files_of_query:
        return None
    watermark = query_of(pipeline).watermark
    if watermark.checkpoint is None:
        raise DefinitionError(
            "the query reads files, and only its checkpoint says which batch has read each",
            pipeline.source_of(("watermark",)) or pipeline.name,
            "Name it under `watermark.checkpoint`. Without it nobody can say which records were late.",
        )
    checkpoint = read_once(spark, checkpoint_files(spark, watermark.checkpoint))
    source = file_source(checkpoint.files, pipeline, watermark)
    return None if source is None else checkpoint.files[source]


def numbered(log: Sequence[SourceFile], there: Sequence[PinnedFile]) -> dict[PinnedFile, int]:
    """The files that the query has listed, each with its number in the query's log.

    Files that were moved together, or copied, are known by their names. Raises HistoryError for a file that is missing,
    or that was written again since.
    """
    at = {file.path: file for file in there}
    found = [at.get(file.hadoop_path) for file in log]
    if not any(found):
        by_name: Mapping[str, PinnedFile] = {_name(file.path): file for file in there}
        found = [by_name.get(_name(file.hadoop_path)) for file in log]
        if len(by_name) < len(there) or len({_name(file.hadoop_path) for file in log}) < len(log):
            found = [None] * len(log)
    else:
        for listed, file in zip(log, found, strict=True):
            if file is not None and file.modified != listed.timestamp:
                was, now = format_instant(listed.timestamp), format_instant(file.modified)
                raise HistoryError(
                    f"the file was written again after the query had listed it: it was of {was}, and is of {now}",
                    plain_path(file.path),
                    "What the query has read of it is not known. Put back the file as it was.",
                )
    numbers: dict[PinnedFile, int] = {}
    for number, (listed, file) in enumerate(zip(log, found, strict=True)):
        if file is None:
            raise HistoryError(
                "the query has read a file that is not among those of the history",
                plain_path(listed.hadoop_path),
                "Put it back, or correct history.path: it has to name all files that the query reads.",
            )
        numbers[file] = number
    return numbers


def with_file_positions(frame: DataFrame, numbers: Mapping[PinnedFile, int]) -> DataFrame:
    """Add PARTITION and OFFSET to the rows of these files.

    The rows of Parquet files have a number; those of others are sorted by file for one.
    """
    table = pa.table(
        {
            _PATH: [file.named_by_spark for file in numbers],
            _NUMBER: pa.array(numbers.values(), pa.int64()),
        }
    )
    files = F.broadcast(frame.sparkSession.createDataFrame(table))
    try:
        placed = frame.withColumn(_READ, F.col("_metadata.row_index"))
        is_numbered = True
    except AnalysisException:
        columns = {_BLOCK: F.col("_metadata.file_block_start"), _READ: F.monotonically_increasing_id()}
        placed, is_numbered = frame.withColumns(columns), False
    placed = placed.withColumn("rw_of", F.col("_metadata.file_path"))
    placed = placed.join(files, F.col("rw_of") == F.col(_PATH)).drop("rw_of", _PATH)
    row = F.col(_READ)
    if not is_numbered:
        row = F.row_number().over(Window.partitionBy(_NUMBER).orderBy(_BLOCK, _READ)) - 1
    offset = F.col(_NUMBER) * F.lit(ROWS) + row
    return placed.withColumns({PARTITION: F.lit(0), OFFSET: offset}).drop(_NUMBER, _BLOCK, _READ, "_metadata")


def _name(path: str) -> str:
    return path.rpartition("/")[2]
