"""What can be refused of a request before anything is read: its range and its values. No Spark in this module."""

from __future__ import annotations

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.defined_windows import windows_of


def check_range(pipeline: Pipeline, start: int | None, end: int | None) -> None:
    """Raises DefinitionError for a range that ends before it begins, EmptyRangeError for one without a window's start.

    `start` and `end` are epoch ms; None: as far as the history goes.
    """
    if start is None or end is None:
        return
    if start >= end:
        raise DefinitionError(
            f"the range is reversed or empty: from {format_instant(start)} to {format_instant(end)}",
            pipeline.name,
            "Give a --to after --from; the range [from, to) selects windows by their start.",
        )
    windows = windows_of(pipeline)
    if not isinstance(windows, AlignedWindows):
        return
    first = windows.first_start_at_or_after(start)
    if first >= end:
        raise EmptyRangeError(
            f"no window starts in the range from {format_instant(start)} to {format_instant(end)}",
            pipeline.name,
            f"The next one starts at {format_instant(first)}: a range takes the windows whose start lies in it.",
        )


def check_order(pipeline: Pipeline, mode: Mode) -> None:
    """Raises HistoryError for faithful values of a history whose records have no order."""
    missing = pipeline.missing_positions
    if missing and mode is not Mode.COMPLETE:
        reasons = "; ".join(f"the history has no {name} (history.position.{name})" for name in missing)
        raise HistoryError(
            f"faithful results need the order of the log: {reasons}",
            pipeline.source_of(("history",)) or pipeline.name,
            f"{WITHOUT_ORDER[:1].upper()}{WITHOUT_ORDER[1:]}.",
        )


def check_until(pipeline: Pipeline, until: int | None) -> None:
    """Raises DefinitionError where a reconciliation is to end at an instant, and no record says when it arrived."""
    if until is not None and "arrival" in pipeline.history.position.missing:
        raise DefinitionError(
            "--until: which records had arrived by then is not known, because the history has no arrival",
            pipeline.source_of(("history",)) or pipeline.name,
            "Leave it empty: all that is there is taken. Or name history.position.arrival.",
        )


WITHOUT_ORDER = (
    "name partition, offset and arrival under history.position (an integer that grows with each record serves as "
    '`offset`, with `partition: "0"` where there is one file or one writer), or write `mode: complete` in the '
    "definition: complete values need no order"
)
"""What a history without positions can do."""
