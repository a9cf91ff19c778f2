"""A draft of a pipeline's own suite from its published windows: a start for a person who edits it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.formatting import LONGEST

SLACK = 0.5
"""A range is widened at each end by this share of its width."""
NULL_SLACK = 0.05
"""The share of nulls may become larger by this much."""
MAX_VALUES = 20
"""Keys with at most so many values get an expectation that lists them, unless one is longer than a person reads."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about `rows` windows: by column the share of nulls, the least and greatest number, and the values of keys.

    A column without numbers is not in `ranges`, a key with more than `MAX_VALUES` values is not in `values`.
    """

    rows: int
    null_shares: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    values: Mapping[str, Sequence[str]]


def profile(windows: DataFrame, pipeline: Pipeline) -> Profile:
    """Profile the windows' keys and aggregates, in two passes.

    Raises:
        EmptyRangeError: there is no window.
    """
    names = [n for a in pipeline.aggregates for n in (a, f"{a}__complete") if n in windows.columns]
    keys = [key for key in pipeline.keys if isinstance(windows.schema[key].dataType, StringType)]
    numbers = [name for name in names if isinstance(windows.schema[name].dataType, NumericType)]
    columns = [F.count("*").alias("rw_rows")]
    columns += [F.count(F.col(f"`{name}`")).alias(f"rw_count_{name}") for name in names]
    columns += [
        f(F.col(f"`{name}`")).alias(f"rw_{k}_{name}") for name in numbers for k, f in (("a", F.min), ("z", F.max))
    ]
    columns += [F.approx_count_distinct(F.col(f"`{key}`")).alias(f"rw_values_{key}") for key in keys]
    totals = windows.agg(*columns).collect()[0]
    rows = totals["rw_rows"]
    if not rows:
        raise EmptyRangeError("there is no window to draft expectations from", pipeline.name, "Run the pipeline first.")
    ranges: dict[str, tuple[float, float]] = {}
    for name in numbers:
        ends = (totals[f"rw_a_{name}"], totals[f"rw_z_{name}"])
        if all(end is not None and math.isfinite(end) for end in ends):
            ranges[name] = ends
    values: dict[str, list[str]] = {}
    for key in (key for key in keys if totals[f"rw_values_{key}"] <= MAX_VALUES):
        found = windows.select(f"`{key}`").where(F.col(f"`{key}`").isNotNull()).distinct().limit(MAX_VALUES + 1)
        texts = sorted(row[0] for row in found.collect())
        if 0 < len(texts) <= MAX_VALUES and max(map(len, texts)) <= LONGEST:
            values[key] = texts
    return Profile(rows, {name: 1 - totals[f"rw_count_{name}"] / rows for name in names}, ranges, values)


def drafted(pipeline: Pipeline, profile: Profile, source: str) -> dict[str, Any]:
    """The suite, in Great Expectations' JSON; a function of the profile alone. `source`: the table, for the notes."""
    expectations: list[dict[str, Any]] = []
    for key, values in profile.values.items():
        expectations.append(
            _expectation(
                "expect_column_values_to_be_in_set",
                {"column": key, "value_set": list(values)},
                f"{key.replace('_', '-')}-known",
                f"Values of {key} that were there when this was drafted",
            )
        )
    for name, share in profile.null_shares.items():
        mostly = math.floor((1 - share - NULL_SLACK) * 100) / 100 if share else 1
        if mostly > 0:
            kwargs = {"column": name} if mostly == 1 else {"column": name, "mostly": mostly}
            text = f"{name} was null in {share:.1%} of the windows" if share else f"{name} was never null"
            label = f"{name.replace('_', '-')}-not-null"
            expectations.append(_expectation("expect_column_values_to_not_be_null", kwargs, label, text))
    for name, (least, greatest) in profile.ranges.items():
        low, high = widened(least, greatest)
        kwargs = {"column": name, "min_value": low, "max_value": high}
        text = f"{name} lay between {_number(least)} and {_number(greatest)}"
        label = f"{name.replace('_', '-')}-in-range"
        expectations.append(_expectation("expect_column_values_to_be_between", kwargs, label, text))
    return {
        "name": pipeline.name,
        "notes": f"Drafted from {profile.rows} windows of {source}, with some slack. Edit before you rely on it: "
        "keep what must hold, say why, make it critical where a break must not be published.",
        "meta": {"data": "windows"},
        "expectations": expectations,
    }


def widened(least: float | Decimal, greatest: float | Decimal) -> tuple[int | float, int | float]:
    """The range widened by `SLACK` at both ends and rounded outward to two digits; it does not cross zero."""
    slack = (Decimal(str(greatest)) - Decimal(str(least))) * Decimal(str(SLACK)) or abs(Decimal(str(greatest))) / 2
    low, high = Decimal(str(least)) - slack, Decimal(str(greatest)) + slack
    low = max(low, Decimal(0)) if least >= 0 else low
    high = min(high, Decimal(0)) if greatest <= 0 else high
    return _outward(low, math.floor), _outward(high, math.ceil)


def _outward(value: Decimal, direction: Callable[[Decimal], int]) -> int | float:
    if not value:
        return 0
    step = Decimal(10) ** (value.adjusted() - 1)
    return _number(direction(value / step) * step)


def _number(value: float | Decimal) -> int | float:
    return int(value) if value == int(value) else float(value)


def _expectation(kind: str, kwargs: dict[str, Any], name: str, description: str) -> dict[str, Any]:
    return {
        "type": kind,
        "kwargs": kwargs,
        "severity": "warning",
        "description": description,
        "meta": {"name": name},
    }


def write(suite: Mapping[str, Any], path: Path, *, force: bool) -> None:
    """Write the suite as a file.

    Raises:
        DefinitionError: there is a file already and not `force`, or none can be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(formatted(suite))
    except FileExistsError:
        hint = "It may hold what somebody has reviewed: --force overwrites it."
        raise DefinitionError("there is a suite already", str(path), hint) from None
    except OSError as problem:
        raise DefinitionError(f"cannot be written: {problem.strerror}", str(path), "Check the folder.") from None


def formatted(suite: Mapping[str, Any]) -> str:
    """The suite as JSON for reviewers: one line for each field of an expectation."""
    head = [f"  {json.dumps(k)}: {json.dumps(v)}," for k, v in suite.items() if k != "expectations"]
    blocks = [
        "    {\n" + ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in one.items()) + "\n    }"
        for one in suite["expectations"]
    ]
    body = '  "expectations": [' + ("\n" + ",\n".join(blocks) + "\n  ]" if blocks else "]")
    return "\n".join(["{", *head, body, "}"]) + "\n"
