"""Quarantined records by their reasons, with an example of each."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MOST = 20
"""The most reasons that are told apart."""
LONGEST = 200
"""The most characters of an example."""


@dataclass(frozen=True, slots=True)
class QuarantineReason:
    """One reason, the records that it holds for, and the first of them by position.

    `partition`, `offset`, `arrival` (epoch ms) are None where they are not known. `value`: the record's text; of bytes
    that are no UTF-8 their hexadecimal digits; empty: the record has no value.
    """

    reason: str
    records: int
    partition: int | None
    offset: int | None
    arrival: int | None
    value: str


def reasons_of(quarantine: DataFrame) -> tuple[QuarantineReason, ...]:
    """The reasons of quarantined records (`QUARANTINE_SCHEMA`), the most frequent first; at most `MOST`. One job."""
    bytes_of = F.coalesce(F.col("raw_bytes"), F.col("raw").cast("binary"))
    arrival, value = F.unix_millis("arrival").alias("arrival"), F.substring(bytes_of, 1, LONGEST).alias("value")
    first = F.min(F.struct("partition", "offset", arrival, value)).alias("first")
    found = quarantine.groupBy("reason").agg(F.count(F.lit(1)).alias("records"), first)
    rows = found.orderBy(F.desc("records"), "reason").limit(MOST).collect()
    return tuple(
        QuarantineReason(
            row["reason"],
            row["records"],
            row["first"]["partition"],
            row["first"]["offset"],
            row["first"]["arrival"],
            _text(row["first"]["value"]),
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
