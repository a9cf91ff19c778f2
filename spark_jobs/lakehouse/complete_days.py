"""`<table>__complete`: for each day (UTC, by the windows' starts) whether all its windows are closed.

One row for each day, written behind each publication: a reader sees a new mark no earlier than the windows that it is
about. A day that changes once more keeps its row, and gets another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.lakehouse.commits import retried
from spark_jobs.lakehouse.tables import AS_OF, Tables, ensure_table, guarded
from spark_jobs.replay.columns import STATE

_SCHEMA = t.StructType(
    [
        t.StructField("day", t.DateType()),
        t.StructField("is_complete", t.BooleanType()),
        t.StructField("version", t.IntegerType()),
        t.StructField("windows", t.LongType()),
        t.StructField("windows_open", t.LongType()),
        t.StructField("complete_since", t.TimestampType()),
        t.StructField("as_of", AS_OF),
        t.StructField("run_id", t.StringType()),
        t.StructField("marked_at", t.TimestampType()),
    ]
)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Mark:
    """What a run says of days.

    Attributes:
        run_id, as_of, at: The run, its end offsets, and now.
        changed: The days whose windows it has changed.
        closed_to: The watermark: it has passed every end up to this (epoch ms); None: there is no watermark.
        reach: How far (ms) the last window of a day can reach into the next one.
    """

    run_id: str
    as_of: Mapping[int, int]
    at: datetime
    changed: frozenset[date]
    closed_to: int | None
    reach: int = 0


def complete_table(tables: Tables) -> str:
    """The full name of the table."""
    return f"{tables.windows}__complete"


def mark_days(spark: SparkSession, tables: Tables, mark: Mark) -> None:
    """Write the rows of the days that the run has changed, and of those that were not complete before.

    Raises CatalogError where the table cannot be written.
    """
    table = complete_table(tables)

    def write() -> None:
        ensure_table(spark, table, _SCHEMA)
        known = {row["day"]: row for row in spark.table(table).collect()}
        rows = {row[0]: row for row in _rows(_counted(spark, tables, known, mark), known, mark)}
        if rows:
            whole = spark.createDataFrame(list((known | rows).values()), _SCHEMA)
            whole.writeTo(table).overwrite(F.lit(True))

    guarded("cannot write", table, lambda: retried(write))


def _counted(
    spark: SparkSession, tables: Tables, known: Mapping[date, t.Row], mark: Mark
) -> dict[date, tuple[int, int, int]]:
    """By day: windows, open ones, and the last end (epoch ms); of days that can have another mark than before."""
    windows = spark.table(tables.windows)
    settled = [day for day, row in known.items() if row["is_complete"] and day not in mark.changed]
    if known and len(settled) == len(known):
        windows = windows.where(F.col("window_start") >= F.lit(max(known) + _DAY).cast("timestamp"))
    elif settled:
        first = min([*mark.changed, *(day for day in known if day not in settled), max(known) + _DAY])
        windows = windows.where(F.col("window_start") >= F.lit(first).cast("timestamp"))
    is_open = F.count_if(F.col(STATE).eqNullSafe("open")) if STATE in windows.columns else F.lit(0)
    end = F.max(F.unix_millis("window_end"))
    rows = windows.groupBy(F.col("window_start").cast("date").alias("day")).agg(F.count("*"), is_open, end).collect()
    return {row[0]: (row[1], row[2], row[3]) for row in rows if row[0] is not None}


def _rows(
    counted: Mapping[date, tuple[int, int, int]], known: Mapping[date, t.Row], mark: Mark
) -> Iterable[tuple[object, ...]]:
    days = {*counted, *mark.changed, *(day for day, row in known.items() if not row["is_complete"])}
    days |= set(_between(days | set(known)))
    for day in sorted(days):
        before, (windows, still_open, last) = known.get(day), counted.get(day, (0, 0, 0))
        if before is not None and before["is_complete"] and day not in mark.changed:
            continue
        complete = _is_complete(day, still_open, last, mark)
        is_told = day not in mark.changed or (before is not None and before["run_id"] == mark.run_id)
        if is_told and before is not None and before["is_complete"] == complete:
            continue
        was = None if before is None else before["complete_since"]
        since = was or (mark.at if complete else None)
        version = 1 if before is None else before["version"] + 1
        yield (day, complete, version, windows, still_open, since, dict(mark.as_of), mark.run_id, mark.at)


def _between(days: Iterable[date]) -> Iterable[date]:
    """The days from the first to the last, where they are not more than there can be of one history."""
    known = sorted(days)
    if known and (known[-1] - known[0]).days <= 20_000:
        yield from (known[0] + number * _DAY for number in range((known[-1] - known[0]).days + 1))


def _is_complete(day: date, still_open: int, last: int, mark: Mark) -> bool | None:
    """None: nobody knows, since values without lateness have no watermark."""
    if mark.closed_to is None:
        return None
    end = ((day - date(1970, 1, 1)).days + 1) * 86_400_000
    return not still_open and mark.closed_to >= max(last, end + mark.reach) - 1
