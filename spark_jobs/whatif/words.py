"""The measures in words, for commands and Airflow."""

from __future__ import annotations

from spark_jobs.formatting import length, plain
from spark_jobs.whatif.found import Delay, Differs, Measured

COLUMNS = ("Definition", "Dropped", "Late", "First value", "Last value", "State", "Other than published")


def in_words(one: Measured) -> tuple[str, ...]:
    """The cells of a definition's row, in the order of `COLUMNS`."""
    delays = (_delay(one.first), _delay(one.last))
    return (plain(one.name, 200), f"{one.dropped:,}", f"{one.late:,}", *delays, f"{one.state:,}", _against(one))


def _delay(delay: Delay | None) -> str:
    return "nobody knows" if delay is None else f"{length(delay.median)} (longest {length(delay.longest)})"


def _against(one: Measured) -> str:
    found = one.against
    if found is None:
        return "nothing is published"
    alone = found.only_here + found.only_published
    far = (f"{name} by {amount:,g} in all" for name, amount in found.total.items() if amount)
    parts = [f"{found.different:,} of {found.same + found.different:,}", *far]
    return ", ".join([*parts, f"{alone:,} on one side only"] if alone else parts)


def sample_in_words(sample: Differs) -> tuple[str, ...]:
    """A window, its key, the column, and both values."""
    keys = ", ".join(f"{name} {'null' if value is None else plain(value, 80)}" for name, value in sample.keys.items())
    values = ("no value" if value is None else plain(value, 80) for value in (sample.before, sample.after))
    return (f"{sample.window_start} to {sample.window_end}", keys, sample.column, *values)
