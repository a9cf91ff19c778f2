"""Whether records that were read before would get the same rows from the lookup's table as they did."""

from __future__ import annotations

from dataclasses import asdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.pins import PinnedSnapshot
from spark_jobs.runs.night.affected import PreviousRun
from spark_jobs.sources import lookup_rows

KEY = "lookup"
"""Where the saved state of a run has the snapshot that its records were looked up in."""


def kept_lookup(pinned: PinnedSnapshot | None) -> dict[str, object]:
    """The snapshot as a saved state has it."""
    return {} if pinned is None else {KEY: asdict(pinned)}


def why_looked_up_anew(spark: SparkSession, tables: Tables, before: PreviousRun, now: PinnedSnapshot) -> str:
    """Why all records are looked up anew; empty: the table has the rows that what is published was made with.

    A table that was compacted, or has got other rows and lost them again, has the same rows.
    """
    last, _ = Ledger(spark, tables).latest_published()
    if last is None or last["run_id"] != before.run_id:
        return "a run over a part of the range, published since, may have seen other rows of the lookup's table"
    known = before.state.get(KEY)
    if known is None:
        return f"run {before.run_id} kept no snapshot of the lookup's table"
    then = PinnedSnapshot(**known)
    if then == now:
        return ""
    try:
        rows_then, rows_now = lookup_rows(spark, then), lookup_rows(spark, now)
    except SourceError as gone:
        return f"the records are looked up anew: {gone.what}"
    if rows_then.schema != rows_now.schema or _differ(rows_then, rows_now):
        return f"the records are looked up anew: rows of {now.table} have changed"
    return ""


def _differ(then: DataFrame, now: DataFrame) -> bool:
    """Whether one has a row that the other lacks, or more often; as JSON, since maps cannot be compared."""
    one, other = (rows.select(F.to_json(F.struct("*"))) for rows in (then, now))
    return not (one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty())
