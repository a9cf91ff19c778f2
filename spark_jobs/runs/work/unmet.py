"""An expectation's result in a sentence: what was expected, what was observed, what is allowed. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_jobs.formatting import length, moment, percent, plain, plural
from spark_jobs.runs.life.documents import DayResult, ExpectationResult

_DAYS_NAMED = 3
_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
_KNOWN = "known_distinct"
_SENTENCES = {
    (_KNOWN, True): "one row each, since the rows were grouped by these columns",
    ("or_equal", True): "equal values too",
    ("or_equal", False): "",
    ("ignore_row_if", "neither"): "",
    ("ignore_row_if", "never"): "",
    ("ignore_row_if", "both_values_are_missing"): "rows without both values are left out",
    ("ignore_row_if", "either_value_is_missing"): "rows without one of the values are left out",
    ("ignore_row_if", "all_values_are_missing"): "rows without any of the values are left out",
    ("ignore_row_if", "any_value_is_missing"): "rows without one of the values are left out",
}
"""Arguments that are no bounds, with their values, in words; empty: what goes without saying."""
_WRITTEN = {"regex": "text like {}", "value_set": "one of {}"}
"""Arguments that are no bounds, in words with their value."""
_INSTANTS = frozenset({"rw_start_ms", "first_arrival_ms", "last_arrival_ms", "run_first_event_ms", "run_last_event_ms"})
"""The columns of milliseconds that are instants; Rewindow's other ones are lengths of time."""


def expectation_name(result: ExpectationResult) -> str:
    """The description of the expectation that a result is of; where it has none, its type."""
    return plain(result.description or result.expectation or "an expectation", 160)


def observed_in_words(result: ExpectationResult) -> str:
    """What was observed: rows that break the rule, or a value; shares as percentages."""
    if result.error:
        return f"could not be evaluated: {plain(result.error, 200)}"
    unexpected, checked = result.unexpected_count, result.checked
    if not is_counted(result):
        return "not counted"
    if result.days is not None:
        return _days_in_words(result, result.days)
    if unexpected is None:
        return _value(result.observed, result.column)
    return _rows_in_words(unexpected, checked)


def day_in_words(result: ExpectationResult, day: DayResult) -> str:
    """What was observed on one day."""
    if day.unexpected_count is None:
        return _value(day.observed, result.column)
    return _rows_in_words(day.unexpected_count, day.checked)


def _rows_in_words(unexpected: int, checked: int | None) -> str:
    of = " rows" if checked is None else f" of {plural(checked, 'row')}"
    return f"{plain(unexpected)}{of} {'is' if unexpected == 1 else 'are'} unexpected"


def _days_in_words(result: ExpectationResult, days: int) -> str:
    """How many days failed, and the first of them by name."""
    if not result.days_failed:
        return f"{plural(days, 'day')}, each as expected"
    named = [f"{plain(day.day)}: {day_in_words(result, day)}" for day in result.failed_days[:_DAYS_NAMED]]
    more = result.days_failed - len(named)
    of = f"{result.days_failed:,} of {plural(days, 'day')}"
    return f"{of}: {'; '.join(named)}{f'; and {more:,} more' if more else ''}"


def allowed_in_words(result: ExpectationResult) -> str:
    """What is allowed: bounds in words, other arguments by name; empty where there are none."""
    threshold, column = result.threshold, result.column
    low, high, above, below = (threshold.get(name) for name in _BOUNDS)
    is_instant = column in _INSTANTS
    parts = []
    if low is not None and low == high:
        parts.append(_value(low, column))
    elif low is not None and high is not None and not above:
        before = ("before " if is_instant else "less than ") if below else ""
        parts.append(f"{_value(low, column)} to {before}{_value(high, column)}")
    else:
        names = (
            ("from", "after", "up to", "before") if is_instant else ("at least", "more than", "at most", "less than")
        )
        parts += [] if low is None else [f"{names[bool(above)]} {_value(low, column)}"]
        parts += [] if high is None else [f"{names[2 + bool(below)]} {_value(high, column)}"]
    parts += [_argument(name, value) for name, value in threshold.items() if name not in _BOUNDS]
    return "; ".join(filter(None, parts))


def is_counted(result: ExpectationResult) -> bool:
    """Whether there was something to look at: a figure that the run does not have, or no row, meets any expectation."""
    if result.error:
        return True
    if result.threshold.get(_KNOWN) or result.days == 0:
        return False
    if result.days is not None:
        return True
    if result.unexpected_count is None:
        return result.observed is not None
    return result.checked != 0


def null_key_ways(result: ExpectationResult, pipeline: str) -> str:
    """What can be done about keys that are null, for the expectation that refuses them; empty for other ones."""
    if result.name != "keys-not-null" or result.column is None:
        return ""
    key = plain(result.column, 80)
    return (
        f"Records without `{key}` make windows of their own. Keep them under a name (in the definition, "
        f"`keys: {{{key}: \"coalesce({key}, 'none')\"}}`), or leave them out (`filter: {{before_watermark: "
        f"{key} IS NOT NULL}}`), or allow them (in expectations/{plain(pipeline, 80) or 'PIPELINE'}.json, "
        '`"leave_out": ["windows/keys-not-null"]`).'
    )


def _argument(name: Any, value: Any) -> str:
    if isinstance(value, bool | str) and (name, value) in _SENTENCES:
        return _SENTENCES[name, value]
    if name == "mostly" and isinstance(value, int | float):
        return f"in at least {percent(value, 1)} of the rows"
    if name in _WRITTEN:
        return _WRITTEN[name].format(plain(value))
    return f"{plain(name)} {plain(value)}"


def unmet_in_words(result: ExpectationResult) -> str:
    """One failed expectation: its name, the observed and the allowed value."""
    allowed = allowed_in_words(result)
    observed = observed_in_words(result)
    of_column = f", column {plain(result.column, 80)}" if _names_column(result) else ""
    values = observed if result.error else f"observed {observed}" + (f", allowed {allowed}" if allowed else "")
    return f"{expectation_name(result)} ({values}{of_column})"


def _names_column(result: ExpectationResult) -> bool:
    """Whether a sentence needs the column: one of the windows' own, which the description need not name."""
    column = result.column
    return column is not None and not column.startswith(("run_", "rw_")) and not result.error


def closed_in_words(critical: Sequence[ExpectationResult]) -> str:
    """Why a gate is closed: how many critical expectations failed, and the first of them in full."""
    failed = f"{plural(len(critical), 'critical expectation')} failed"
    if not critical:
        return failed
    more = f"; and {len(critical) - 1:,} more" if len(critical) > 1 else ""
    return f"{failed}: {unmet_in_words(critical[0])}{more}"


def _value(value: Any, column: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(column, str):
        return plain(value)
    if column.endswith("_share"):
        return percent(value, 1)
    if column in _INSTANTS:
        return moment(round(value))
    if column.endswith("_ms") and column.startswith(("run_", "rw_", "lag_")):
        return length(value)
    return plain(value)
