"""The lookup of a definition: its rows as a plan pins them, and the records joined to them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, TimestampNTZType, TimestampType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.lookup import Lookup
from spark_jobs.errors import HistoryError, SourceError
from spark_jobs.pins import PinnedSnapshot
from spark_jobs.sources.expressions import Refused, expression_type, refuse
from spark_jobs.sources.lake.iceberg import pin_snapshot, read_snapshot
from spark_jobs.sources.records.attempts import attempt, can_fail
from spark_jobs.spark.gateway import tried
from spark_jobs.spark.texts import as_text

_AT = "rw_lookup_at"
_KEY = "rw_lookup_key_"
_WANTED = "rw_lookup_wanted_"
_ROW = "rw_lookup_"


def pin_lookup(spark: SparkSession, pipeline: Pipeline, pinned: PinnedSnapshot | None = None) -> PinnedSnapshot | None:
    """The snapshot of the table that records are looked up in, or that of a plan; None: there is no lookup.

    Raises SourceError where the table or a column is not there, or the snapshot of the plan has expired; HistoryError
    where a record could have two rows.
    """
    lookup = pipeline.lookup
    if lookup is None:
        return None
    found = pin_snapshot(spark, lookup.table, pinned)
    if pinned is None:
        _refuse_two_rows(_rows(spark, pipeline, lookup, found), pipeline, lookup, found)
    return found


def lookup_rows(spark: SparkSession, pinned: PinnedSnapshot) -> DataFrame:
    """All rows of a snapshot of a lookup's table. Raises SourceError: it has expired, or the table was made anew."""
    return read_snapshot(spark, pin_snapshot(spark, pinned.table, pinned))


def changed_keys(pipeline: Pipeline, then: DataFrame, now: DataFrame) -> DataFrame:
    """The keys of rows that one state of a lookup's table has and the other has not, or more often.

    Rows are compared as texts, since maps cannot be compared.
    """
    lookup = pipeline.lookup
    assert lookup is not None
    on = [f"`{name}`" for name in lookup.on]
    one, other = (rows.select(*on, as_text(*(f"`{name}`" for name in rows.columns))) for rows in (then, now))
    return one.exceptAll(other).unionByName(other.exceptAll(one)).select(*on).distinct()


def with_lookup(
    records: DataFrame,
    pipeline: Pipeline,
    pinned: PinnedSnapshot | None,
    event_time: Column,
    only: DataFrame | None = None,
) -> DataFrame:
    """The records with the columns of their row; null where there is none. `event_time`: epoch ms.

    `only`: keys of the lookup's table; records with another key are left out.
    """
    lookup = pipeline.lookup
    if lookup is None or pinned is None:
        return records
    rows = _rows(records.sparkSession, pipeline, lookup, pinned)
    columns = lookup_columns(records.sparkSession, pipeline, pinned)
    keys = {}
    for number, (name, text) in enumerate(lookup.on.items()):
        path = ("lookup", "on", name)
        kind, wanted = expression_type(records, text, pipeline, path), rows.schema[name].dataType
        if kind != wanted and not (isinstance(kind, IntegralType) and isinstance(wanted, IntegralType)):
            what = f"is {kind.simpleString().upper()}, and the table's `{name}` is {wanted.simpleString().upper()}"
            raise refuse(pipeline, path, Refused(what, f"write CAST(... AS {wanted.simpleString().upper()})"))
        one = attempt(records, "lookup.on", text)
        keys[f"{_KEY}{number}"] = tried(F.expr(text)) if can_fail(records.sparkSession, one.tree) else F.expr(text)
    asked = records.withColumns({**keys, _AT: event_time})
    if only is not None:
        wanted = only.select(*(F.col(f"`{name}`").alias(f"{_WANTED}{number}") for number, name in enumerate(lookup.on)))
        same = [F.col(f"{_KEY}{number}") == F.col(f"{_WANTED}{number}") for number in range(len(lookup.on))]
        asked = asked.join(wanted, same, "left_semi")
    renamed = rows.select(*(F.col(f"`{name}`").alias(f"{_ROW}{name}") for name in rows.columns))
    fits = F.lit(True)
    for number, name in enumerate(lookup.on):
        fits = fits & (F.col(f"{_KEY}{number}") == F.col(f"`{_ROW}{name}`"))
    if lookup.as_of == "event_time":
        start, end = (F.unix_millis(F.col(f"`{_ROW}{name}`")) for name in (lookup.valid_from, lookup.valid_to))
        fits = fits & (F.col(_AT) >= start) & (end.isNull() | (F.col(_AT) < end))
    joined = asked.join(renamed, fits, "left")
    mine = {name.lower() for name in columns}
    kept = [F.col(f"`{name}`") for name in records.columns if name.lower() not in mine]
    return joined.select(*kept, *(F.col(f"`{_ROW}{name}`").alias(name) for name in columns))


def lookup_columns(spark: SparkSession, pipeline: Pipeline, pinned: PinnedSnapshot | None) -> list[str]:
    """The columns that a lookup adds."""
    if pipeline.lookup is None or pinned is None:
        return []
    rows = _rows(spark, pipeline, pipeline.lookup, pinned)
    hidden = {pipeline.lookup.valid_from, pipeline.lookup.valid_to, *pipeline.lookup.on}
    return [name for name in rows.columns if name not in hidden]


def _rows(spark: SparkSession, pipeline: Pipeline, lookup: Lookup, pinned: PinnedSnapshot) -> DataFrame:
    """The rows of the snapshot, times in UTC. Raises SourceError for a column that they have not."""
    rows = read_snapshot(spark, pinned)
    named = {"on": list(lookup.on), "valid_from": [lookup.valid_from], "valid_to": [lookup.valid_to]}
    for field, names in named.items():
        for name in names:
            if name is not None and name not in rows.columns:
                where = pipeline.source_of(("lookup", field)) or pipeline.name
                hint = f"Its columns are {', '.join(rows.columns)}."
                raise SourceError(f"table {lookup.table} has no column `{name}`", where, hint)
            if name is not None and field != "on":
                kind = rows.schema[name].dataType
                if not isinstance(kind, TimestampType | TimestampNTZType):
                    where = pipeline.source_of(("lookup", field)) or pipeline.name
                    raise SourceError(
                        f"column `{name}` of {lookup.table} is {kind.simpleString().upper()}, no TIMESTAMP", where, ""
                    )
                rows = rows.withColumn(name, F.col(f"`{name}`").cast("timestamp"))
    return rows


def _refuse_two_rows(rows: DataFrame, pipeline: Pipeline, lookup: Lookup, pinned: PinnedSnapshot) -> None:
    keys = [F.col(f"`{name}`") for name in lookup.on]
    known = rows
    for key in keys:
        known = known.where(key.isNotNull())
    if lookup.as_of == "run":
        twice = known.groupBy(*keys).count().where("count > 1")
    else:
        start, end = F.col(f"`{lookup.valid_from}`"), F.col(f"`{lookup.valid_to}`")
        valid = known.where(start.isNotNull() & (end.isNull() | (start < end)))
        following = F.lead(start).over(Window.partitionBy(*keys).orderBy(start))
        overlaps = following.isNotNull() & (end.isNull() | (following < end))
        twice = valid.withColumn("rw_overlaps", overlaps).where("rw_overlaps")
    first = twice.select(*keys).limit(1).collect()
    if first:
        key = ", ".join(f"{name} = {value}" for name, value in first[0].asDict().items())
        at = " at one time" if lookup.as_of == "event_time" else ""
        raise HistoryError(
            f"table {lookup.table} has two rows for {key}{at}: which one a record gets is not said",
            pipeline.source_of(("lookup", "on")) or f"snapshot {pinned.snapshot}",
            "Add the columns to `lookup.on` that tell them apart, or remove one of the rows.",
        )
