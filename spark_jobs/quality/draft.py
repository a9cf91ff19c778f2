"""A first suite of a pipeline's own, drafted from windows that are there: a start for a person, not a judgement."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError, EmptyRangeError

SLACK = 0.5
"""By how much of its width a range is widened at each end."""
NULL_SLACK = 0.05
"""How much larger a share of nulls may become."""
MAX_VALUES = 20
"""Keys with no more values than this are held to them."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What `rows` windows hold: by column the share of nulls, least and greatest number, and the values of small keys.

    A column without numbers is not in `ranges`, a key with many values not in `values`.
    """

    rows: int
    null_shares: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    values: Mapping[str, Sequence[str]]


def profile(windows: DataFrame, pipeline: Pipeline) -> Profile:
    """Profile the windows' keys and aggregates, in two passes. Raises EmptyRangeError where there is no window."""
    names = [n for a in pipeline.aggregates for n in (a, f"{a}__complete") if n in windows.columns]
    keys = [key for key in pipeline.keys if isinstance(windows.schema[key].dataType, StringType)]
    numbers = [name for name in names if isinstance(windows.schema[name].dataType, NumericType)]
    asked = [F.count("*").alias("rw_rows")]
    asked += [F.count(F.col(f"`{name}`")).alias(f"rw_count_{name}") for name in names]
    asked += [
        f(F.col(f"`{name}`")).alias(f"rw_{k}_{name}") for name in numbers for k, f in (("a", F.min), ("z", F.max))
    ]
    asked += [F.approx_count_distinct(F.col(f"`{key}`")).alias(f"rw_values_{key}") for key in keys]
    told = windows.agg(*asked).collect()[0]
    rows = told["rw_rows"]
    if not rows:
        raise EmptyRangeError("there is no window to draft expectations from", pipeline.name, "Run the pipeline first.")
    ranges = {}
    for name in numbers:
        ends = (told[f"rw_a_{name}"], told[f"rw_z_{name}"])
        if all(end is not None and math.isfinite(end) for end in ends):
            ranges[name] = ends
    values = {}
    for key in (key for key in keys if told[f"rw_values_{key}"] <= MAX_VALUES):
        found = windows.select(f"`{key}`").where(F.col(f"`{key}`").isNotNull()).distinct().limit(MAX_VALUES + 1)
        texts = sorted(row[0] for row in found.collect())
        if 0 < len(texts) <= MAX_VALUES:
            values[key] = texts
    return Profile(rows, {name: 1 - told[f"rw_count_{name}"] / rows for name in names}, ranges, values)


def drafted(pipeline: Pipeline, told: Profile, source: str) -> dict[str, Any]:
    """The suite, in Great Expectations' JSON; a function of the profile alone. `source`: the table, for the notes."""
    expectations = []
    for key, values in told.values.items():
        expectations.append(
            _expectation(
                "expect_column_values_to_be_in_set",
                {"column": key, "value_set": list(values)},
                f"{key.replace('_', '-')}-known",
                f"Values of {key} that were there when this was drafted",
            )
        )
    for name, share in told.null_shares.items():
        mostly = math.floor((1 - share - NULL_SLACK) * 100) / 100 if share else 1
        if mostly > 0:
            kwargs = {"column": name} if mostly == 1 else {"column": name, "mostly": mostly}
            text = f"{name} was null in {share:.1%} of the windows" if share else f"{name} was never null"
            label = f"{name.replace('_', '-')}-not-null"
            expectations.append(_expectation("expect_column_values_to_not_be_null", kwargs, label, text))
    for name, (least, greatest) in told.ranges.items():
        low, high = widened(least, greatest)
        kwargs = {"column": name, "min_value": low, "max_value": high}
        text = f"{name} lay between {_number(least)} and {_number(greatest)}"
        label = f"{name.replace('_', '-')}-in-range"
        expectations.append(_expectation("expect_column_values_to_be_between", kwargs, label, text))
    return {
        "name": pipeline.name,
        "notes": f"Drafted from {told.rows} windows of {source}, with some slack. Edit before you rely on it: "
        "keep what must hold, say why, make it critical where a break must not be published.",
        "meta": {"data": "windows"},
        "expectations": expectations,
    }


def widened(least: Any, greatest: Any) -> tuple[int | float, int | float]:
    """A range with `SLACK` at both ends, in two leading digits; it does not cross zero."""
    slack = (Decimal(str(greatest)) - Decimal(str(least))) * Decimal(str(SLACK)) or abs(Decimal(str(greatest))) / 2
    low, high = Decimal(str(least)) - slack, Decimal(str(greatest)) + slack
    low = max(low, Decimal(0)) if least >= 0 else low
    high = min(high, Decimal(0)) if greatest <= 0 else high
    return _outward(low, math.floor), _outward(high, math.ceil)


def _outward(value: Decimal, direction: Any) -> int | float:
    if not value:
        return 0
    step = Decimal(10) ** (value.adjusted() - 1)
    return _number(direction(value / step) * step)


def _number(value: Any) -> int | float:
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
    """Write the suite. Raises DefinitionError where a file is there already, unless `force`, or none can be made."""
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
    """The suite as JSON for reviewers: one line a field of an expectation."""
    head = [f"  {json.dumps(k)}: {json.dumps(v)}," for k, v in suite.items() if k != "expectations"]
    blocks = [
        "    {\n" + ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in one.items()) + "\n    }"
        for one in suite["expectations"]
    ]
    body = '  "expectations": [' + ("\n" + ",\n".join(blocks) + "\n  ]" if blocks else "]")
    return "\n".join(["{", *head, body, "}"]) + "\n"
