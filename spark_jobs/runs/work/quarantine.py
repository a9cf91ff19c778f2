"""Quarantined records by their reasons, with an example of each."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.runs.life.documents import QuarantineReason

MOST = 20
"""The most reasons that are told apart."""
LONGEST = 200
"""The most characters of an example."""


def reasons_of(quarantine: DataFrame) -> tuple[QuarantineReason, ...]:
    """The reasons of quarantined records (`QUARANTINE_SCHEMA`), the most frequent first; at most `MOST`. One job."""
    bytes_of = F.coalesce(F.col("raw_bytes"), F.col("raw").cast("binary"))
    arrival, value = F.unix_millis("arrival").alias("arrival"), F.substring(bytes_of, 1, LONGEST).alias("value")
    first = F.min(F.struct("partition", "offset", arrival, value)).alias("first")
    found = quarantine.groupBy("reason").agg(F.count(F.lit(1)).alias("records"), first)
    rows = found.orderBy(F.desc("records"), "reason").limit(MOST).collect()
    return tuple(
        QuarantineReason(
            reason=row["reason"],
            records=row["records"],
            **{**row["first"].asDict(), "value": _text(row["first"]["value"])},
        )
        for row in rows
    )


def _text(value: bytes | bytearray | None) -> str:
    if not value:
        return ""
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError as problem:
        if problem.start < len(value) - 3:  # else a character was cut
            return bytes(value).hex(" ")
        text = bytes(value)[: problem.start].decode()
    return text if text.isprintable() or "\n" in text else bytes(value).hex(" ")
