"""Whether records that were read before would get the same rows from the lookup's table as they did."""

from __future__ import annotations

from dataclasses import asdict, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import SourceError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.pins import PinnedSnapshot
from spark_jobs.replay.columns import EVENT_TIME, OFFSET, PARTITION
from spark_jobs.runs.night.affected import PreviousRun
from spark_jobs.sources import OpenHistory, canonical, cut_at, lookup_columns, lookup_rows
from spark_jobs.sources.records.decode import REASON

LOOKUP = "lookup"
"""Where the saved state of a run has the snapshot that its records were looked up in."""


def kept_lookup(pinned: PinnedSnapshot | None) -> dict[str, object]:
    """The snapshot as a saved state has it."""
    return {} if pinned is None else {LOOKUP: asdict(pinned)}


def why_looked_up_anew(spark: SparkSession, pipeline: Pipeline, before: PreviousRun, opened: OpenHistory) -> str:
    """Why all records are looked up anew; empty: those that were read get the rows that they got.

    A table that was compacted, or has got other rows and lost them again, has the same rows. Rows that are new, or are
    valid from a later time on, change nothing for records that were read before.
    """
    known, now = before.state.get(LOOKUP), opened.lookup
    if now is None:
        return ""
    if known is None:
        return f"run {before.run_id} kept no snapshot of the lookup's table"
    last, _ = Ledger(spark, Tables.of(pipeline)).latest_published()
    if last is None or last["run_id"] != before.run_id:
        return "a run over a part of the range, published since, may have seen other rows of the lookup's table"
    then = PinnedSnapshot(**known)
    try:
        rows_then, rows_now = lookup_rows(spark, then), lookup_rows(spark, now)
    except SourceError as gone:
        return f"the records are looked up anew: {gone.what}"
    if then == now or (rows_then.schema == rows_now.schema and not _differ(rows_then, rows_now)):
        return ""
    same_columns = rows_then.schema == rows_now.schema
    got = {_got(pipeline, replace(opened, lookup=one), before) for one in (then, now)} if same_columns else set[int]()
    return "" if len(got) == 1 else f"the records are looked up anew: rows of {now.table} have changed"


def _differ(then: DataFrame, now: DataFrame) -> bool:
    """Whether one has a row that the other lacks, or more often; as JSON, since maps cannot be compared."""
    one, other = (rows.select(F.to_json(F.struct("*"))) for rows in (then, now))
    return not (one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty())


def _got(pipeline: Pipeline, opened: OpenHistory, before: PreviousRun) -> int:
    """A digest of what the records that were read before get from the lookup, and of what they are by it."""
    records = cut_at(canonical(opened, pipeline), before.as_of)
    looked_up = lookup_columns(records.sparkSession, pipeline, opened.lookup)
    decided = (PARTITION, OFFSET, EVENT_TIME, REASON, *pipeline.keys)
    row = F.xxhash64(*(F.col(f"`{name}`") for name in decided), F.to_json(F.struct(*(f"`{n}`" for n in looked_up))))
    return int(records.agg(F.bit_xor(row)).collect()[0][0] or 0)
