"""Confluent's framing of values: a zero byte, the four of a schema's id, and the encoded record."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

NOT_FRAMED = "not in Confluent's framing: the first byte is not 0"
_FRAME = 5


def body_of(value: Column) -> Column:
    """The record behind the framing."""
    return F.substring(value, _FRAME + 1, 2**31 - 1)


def id_of(value: Column) -> Column:
    """The id of the schema, BIGINT; null where there is no framing."""
    return F.when(_is_framed(value), F.conv(F.hex(_id_bytes(value)), 16, 10).cast("bigint"))


def why_not_framed(value: Column, known: int | Collection[int] | None, subject: str = "") -> Column:
    """Why a value's framing cannot be used; null where it can.

    `known`: the id of the definition's schema, or those of a registry's `subject`; None: any id can be used.
    """
    why = F.when(~_is_framed(value) | (F.octet_length(value) < _FRAME), NOT_FRAMED)
    number = F.conv(F.hex(_id_bytes(value)), 16, 10)
    if isinstance(known, int):
        other = F.concat(F.lit("schema id "), number, F.lit(f", and the definition's schema has id {known}"))
        return why.when(_id_bytes(value) != F.lit(known.to_bytes(4, "big")), other)
    if known is not None:
        ids = [F.lit(one.to_bytes(4, "big")) for one in known]
        other = F.concat(F.lit("schema id "), number, F.lit(f", which is of no version of the subject {subject}"))
        return why.when(~_id_bytes(value).isin(*ids), other)
    return why


def _is_framed(value: Column) -> Column:
    return F.substring(value, 1, 1) == F.lit(b"\x00")


def _id_bytes(value: Column) -> Column:
    return F.substring(value, 2, _FRAME - 1)
