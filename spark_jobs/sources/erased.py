"""Records of people who were forgotten: the register of erasures, and which records it means.

`<table>__erasures` has a row for each erasure (`spark_jobs.erasure`). It never has the forgotten value: a record is
known by a salted SHA-256 digest of the columns that the request named, an unusable one by that of its text. Without
a digest the next run would bring back what the history still has. Such records move the watermark, as they did in the
live job, and come to no window, late table or quarantine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.definition import Pipeline
from spark_jobs.replay.columns import ADMITTED, ERASED
from spark_jobs.sources.records.decode import RAW, REASON
from spark_jobs.spark.catalog import CATALOG
from spark_jobs.spark.conditions import any_of

_PEOPLE = t.StructType([t.StructField("columns", t.ArrayType(t.StringType())), t.StructField("digest", t.StringType())])
ERASURES = t.StructType(
    [
        t.StructField("erasure", t.StringType()),
        t.StructField("pipeline", t.StringType()),
        t.StructField("requested_by", t.StringType()),
        t.StructField("requested_at", t.TimestampType()),
        t.StructField("reason", t.StringType()),
        t.StructField("columns", t.ArrayType(t.StringType())),
        t.StructField("salt", t.StringType()),
        t.StructField("people", t.ArrayType(_PEOPLE)),
        t.StructField("unusable", t.ArrayType(t.StringType())),
        t.StructField("found", t.MapType(t.StringType(), t.LongType())),
        t.StructField("recomputed_by", t.StringType()),
    ]
)
"""The columns of `<table>__erasures`."""
_BETWEEN = "\x1f"


def erasures_table(pipeline: Pipeline) -> str:
    """The full name of the pipeline's register of erasures."""
    return f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}__erasures"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure, as the register has it. `people`: columns, and the digest of their values."""

    salt: str
    requested_at: datetime
    people: tuple[tuple[tuple[str, ...], str], ...]
    unusable: tuple[str, ...]

    def holds(self, columns: Collection[str]) -> list[Column]:
        """Conditions that are true of a row of the erased, as far as it has such columns."""
        return [_digest(self.salt, named) == digest for named, digest in self.people if set(named) <= set(columns)]


def erasures_of(spark: SparkSession, pipeline: Pipeline) -> tuple[Erasure, ...]:
    """The erasures of a pipeline."""
    table = erasures_table(pipeline)
    if not spark.catalog.tableExists(table):
        return ()
    rows = spark.table(table).select("salt", "requested_at", "people", "unusable").collect()
    return tuple(
        Erasure(
            row["salt"],
            row["requested_at"],
            tuple((tuple(one["columns"]), one["digest"]) for one in row["people"]),
            tuple(row["unusable"]),
        )
        for row in rows
    )


def digest_of(salt: str, values: Iterable[str]) -> str:
    """The digest of these values, as `_digest` makes it of columns."""
    return hashlib.sha256(_BETWEEN.join((salt, *values)).encode()).hexdigest()


def _digest(salt: str, columns: Iterable[str]) -> Column:
    texts = (F.col(f"`{name}`").cast("string") for name in columns)
    parts = [part for text in texts for part in (F.lit(_BETWEEN), text)]
    return F.sha2(F.concat(F.lit(salt), *parts), 256)


def text_digest(salt: str, text: Column) -> Column:
    """The digest of an unusable record's text."""
    return F.sha2(F.concat(F.lit(salt), F.lit(_BETWEEN), text), 256)


def with_erased(records: DataFrame, erasures: Iterable[Erasure], pipeline: Pipeline) -> DataFrame:
    """The canonical records with ERASED, and with ADMITTED, which is false of the erased."""
    conditions: list[Column] = []
    for one in erasures:
        conditions += one.holds(records.columns)
        if one.unusable and RAW in records.columns:
            among = text_digest(one.salt, F.col(RAW)).isin(*one.unusable)
            conditions.append(F.when(F.col(REASON).isNotNull(), among))
    if not conditions:
        return records
    erased = any_of(F.coalesce(one, F.lit(False)) for one in conditions)
    text = pipeline.filter.after_watermark
    admits = F.col(ADMITTED) if ADMITTED in records.columns else F.lit(True) if text is None else F.expr(text)
    return records.withColumn(ERASED, erased).withColumn(ADMITTED, admits & ~F.col(ERASED))


def without_erased(rows: DataFrame, erasures: Iterable[Erasure]) -> DataFrame:
    """The rows of which no erasure says by their columns that they are of the erased."""
    for one in erasures:
        for condition in one.holds(rows.columns):
            rows = rows.where(~F.coalesce(condition, F.lit(False)))
    return rows
