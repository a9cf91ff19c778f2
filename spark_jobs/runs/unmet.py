"""An expectation's result in a sentence: what was expected, what was observed, what is allowed. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.formatting import percent, plain, plural

_BOUNDS = ("min_value", "max_value")
_SENTENCES = {"known_distinct": "not counted: one aggregation by these columns made the rows"}
"""Arguments that are no bounds, and need more than their name and value."""


def expectation_name(result: Mapping[str, Any]) -> str:
    """The description of the expectation that a result is of; where it has none, its type."""
    return plain(result.get("description") or result.get("expectation") or "an expectation", 160)


def observed_in_words(result: Mapping[str, Any]) -> str:
    """What was observed: rows that break the rule, or a value; shares as percentages."""
    if result.get("error"):
        return f"could not be evaluated: {plain(result['error'], 200)}"
    unexpected, checked = result.get("unexpected_count"), result.get("checked")
    if unexpected is None:
        return _value(result.get("observed"), result.get("column"))
    of = f" of {plural(checked, 'row')}" if isinstance(checked, int) else " rows"
    return f"{plain(unexpected)}{of} {'is' if unexpected == 1 else 'are'} unexpected"


def allowed_in_words(result: Mapping[str, Any]) -> str:
    """What is allowed: bounds in words, other arguments by name; empty where there are none."""
    threshold, column = result.get("threshold") or {}, result.get("column")
    if not isinstance(threshold, Mapping):
        return plain(threshold)
    low, high = (threshold.get(name) for name in _BOUNDS)
    parts = []
    if low is not None and high is not None:
        parts.append(f"{_value(low, column)} to {_value(high, column)}")
    elif low is not None:
        parts.append(f"at least {_value(low, column)}")
    elif high is not None:
        parts.append(f"at most {_value(high, column)}")
    others = {name: value for name, value in threshold.items() if name not in _BOUNDS}
    parts += [_SENTENCES.get(name) or f"{plain(name)} {plain(value)}" for name, value in others.items()]
    return "; ".join(parts)


def unmet_in_words(result: Mapping[str, Any]) -> str:
    """One failed expectation: its name, the observed and the allowed value."""
    allowed = allowed_in_words(result)
    observed = observed_in_words(result)
    values = observed if result.get("error") else f"observed {observed}" + (f", allowed {allowed}" if allowed else "")
    return f"{expectation_name(result)} ({values})"


def closed_in_words(critical: Sequence[Mapping[str, Any]]) -> str:
    """Why a gate is closed: how many critical expectations failed, and the first of them in full."""
    failed = f"{plural(len(critical), 'critical expectation')} failed"
    if not critical:
        return failed
    more = f"; and {len(critical) - 1:,} more" if len(critical) > 1 else ""
    return f"{failed}: {unmet_in_words(critical[0])}{more}"


def _value(value: Any, column: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(column, str) and column.endswith("_share"):
        return percent(value, 1)
    return plain(value)
