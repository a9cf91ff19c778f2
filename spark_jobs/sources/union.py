"""The inputs of a union as one frame of canonical records.

Each input is read, decoded and timed by itself. Then its partitions get the numbers of its block, the reasons of its
quarantined records its name, and the columns that all inputs have, or that an expression needs, are put together.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK, UnionHistory
from spark_jobs.errors import DefinitionError
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.replay.columns import ADMITTED, ERASED, GAP, MARKER, PARTITION, STREAM
from spark_jobs.sources.expressions import Refused, problem, references
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.decode import RAW_BYTES, REASON

_OF_SOME: Mapping[str, t.DataType] = {
    RAW_BYTES: t.BinaryType(),
    MARKER: t.BooleanType(),
    STREAM: t.StringType(),
    GAP: t.LongType(),
    ERASED: t.BooleanType(),
}
"""Rewindow's own columns that the records of some inputs have, others not."""


def joined(pipeline: Pipeline, inputs: Sequence[DataFrame]) -> DataFrame:
    """The canonical records of all inputs, given those of each.

    Raises DefinitionError where a column that an expression uses has two types.
    """
    named = enumerate(zip(inputs, names_of(pipeline), strict=True))
    numbered = [_numbered(records, name, number) for number, (records, name) in named]
    frames = [_with_all(records, numbered, pipeline) for records in numbered]
    kinds = [{field.name.lower(): field.dataType for field in frame.schema} for frame in frames]
    _refuse_other_types(kinds, {name.lower() for name in _used(frames, pipeline)}, pipeline)
    first = kinds[0]
    kept = [
        name for name in frames[0].columns if all(kind.get(name.lower()) == first[name.lower()] for kind in kinds[1:])
    ]
    chosen = (frame.select(*(F.col(f"`{name}`").alias(name) for name in kept)) for frame in frames)
    return functools.reduce(DataFrame.unionByName, chosen)


def inputs_of(pipeline: Pipeline, opened: OpenHistory) -> list[tuple[Pipeline, OpenHistory]]:
    """Each input of a union with its history, or the history by itself."""
    return list(zip(pipeline.inputs, opened.inputs, strict=True)) or [(pipeline, opened)]


def names_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of a union's inputs; none where the history is no union."""
    return tuple(one.name for one in pipeline.history.of) if isinstance(pipeline.history, UnionHistory) else ()


def _numbered(records: DataFrame, name: str, number: int) -> DataFrame:
    partition = F.col(PARTITION)
    fits = partition < F.lit(BLOCK)
    too_high = F.when(~fits, F.concat(F.lit("partition "), partition.cast("string"), F.lit(f" is not below {BLOCK}")))
    reason = F.concat(F.lit(f"{name}: "), F.coalesce(F.col(REASON), too_high))
    place = F.when(fits, partition + F.lit(number * BLOCK)).cast("int")
    return records.withColumns({PARTITION: place, REASON: reason})


def _with_all(records: DataFrame, frames: Sequence[DataFrame], pipeline: Pipeline) -> DataFrame:
    """The records with Rewindow's own columns that those of any input have."""
    there = {name for frame in frames for name in frame.columns} - set(records.columns)
    missing: dict[str, Column] = {
        name: F.lit(False) if name in (MARKER, ERASED) else F.lit(None).cast(kind)
        for name, kind in _OF_SOME.items()
        if name in there
    }
    if ADMITTED in there:
        text = pipeline.filter.after_watermark
        missing[ADMITTED] = F.lit(True) if text is None else F.expr(text)
    return records.withColumns(missing) if missing else records


def _used(frames: Sequence[DataFrame], pipeline: Pipeline) -> set[str]:
    texts = [*aggregates_of(pipeline).values(), pipeline.filter.after_watermark]
    texts.append(getattr(pipeline.window, "gap_expression", None))
    found = set(pipeline.keys)
    for frame in frames:
        found |= references(frame, [text for text in texts if text is not None])
    return found


def _refuse_other_types(kinds: Sequence[Mapping[str, t.DataType]], used: set[str], pipeline: Pipeline) -> None:
    names, inputs = names_of(pipeline), pipeline.inputs
    problems = []
    for column in sorted(used & kinds[0].keys()):
        wanted = kinds[0][column]
        for kind, own, name in zip(kinds[1:], inputs[1:], names[1:], strict=True):
            found = kind.get(column, wanted)
            if found != wanted:
                word, other = wanted.simpleString().upper(), found.simpleString().upper()
                what = f"`{column}` is {word} in {names[0]} and {other} in {name}"
                field = "keys" if column in own.keys else "columns"
                problems.append(problem(own, (field, column), Refused(what, f"write `{column}: CAST(... AS {word})`")))
    if problems:
        raise DefinitionError.listing(problems)
