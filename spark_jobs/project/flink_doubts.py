"""Functions and operators of Flink SQL whose result may differ in Spark."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.project.flink_parser import SqlNode
from spark_jobs.project.flink_script import NoCounterpartError, Remark

AGGREGATES = frozenset(["SUM", "COUNT", "MIN", "MAX", "STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP", "AVG"])
_ALIKE = """
    UPPER LOWER ABS COALESCE CAST TRIM SUBSTRING SUBSTR CONCAT CONCAT_WS NULLIF IF CHAR_LENGTH FLOOR CEIL ROUND
    SQRT POWER LN EXP MOD REPLACE LPAD RPAD DESCRIPTOR
"""
SAME_IN_SPARK = AGGREGATES | frozenset(_ALIKE.split())
"""Functions that give in Spark what they give in Flink."""


def doubts(node: SqlNode) -> Iterator[Remark]:
    """The functions and operators of an expression whose result may differ in Spark.

    Raises NoCounterpartError for one that Spark does not have in any form.
    """
    for part in node.all():
        if part.is_leaf or part.type == "SqlNodeList":
            continue
        if part.floors_time:
            why = "CHECK: date_trunc takes the calendar of UTC, Flink that of the session's zone for TIMESTAMP_LTZ"
            yield Remark(part.line, part.text, why)
        elif part.operator in ("FLOOR", "CEIL") and part.operands[-1].type == "SqlIntervalQualifier":
            why = "Spark has no such function: import the query without it, and write it with date_trunc"
            raise NoCounterpartError(part.text, why, part.line)
        elif part.kind == "DIVIDE":
            yield Remark(part.line, part.text, "CHECK: Flink divides integers without a fraction, Spark with one")
        elif part.kind == "OTHER_FUNCTION" and part.operator == "AVG":
            yield Remark(part.line, part.text, "CHECK: Flink's AVG of integers is an integer, Spark's a double")
        elif part.kind == "OTHER_FUNCTION" and part.operator.upper() not in SAME_IN_SPARK:
            yield Remark(part.line, part.text, f"CHECK: {_instead(part) or f'{part.operator} may differ in Spark'}")


def _instead(call: SqlNode) -> str:
    """What to write for a function that Spark does not have; empty where it has it."""
    if call.operator.upper() != "SPLIT_INDEX" or len(call.operands) != 3:
        return ""
    text, separator, index = (part.text for part in call.operands)
    place = int(index) + 1 if index.isdigit() else f"{index} + 1"
    return (
        f"Spark has no SPLIT_INDEX: write split_part({text}, {separator}, {place}), which counts from 1, and gives '' "
        "where Flink gives null because there are fewer parts"
    )
