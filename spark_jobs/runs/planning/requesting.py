"""A request from texts, as people write them in the form and on the command line. No Spark in this module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import InstantError, format_instant, parse_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.output import Policy
from spark_jobs.definition.position import end_offsets, is_mark
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.runs.life.documents import DryRun, Requested

_MARK = re.compile(r"[\w./:@%+=~# -]{1,1000}")
"""A path, an address, or a consumer group."""


def requested_of(given: Mapping[str, Any]) -> Requested:
    """The request of these fields of `Requested`; None: not given. An empty text is refused, as any that says nothing.

    An `as_of` that is no list of end offsets is a mark of the live job's (`as_of_mark`), which is looked up later.

    Raises DefinitionError that names the option of the command line and says what to write.
    """
    as_of = given.get("as_of")
    if isinstance(as_of, str) and is_mark(as_of):
        given = {**given, "as_of": None, "as_of_mark": as_of.strip()}
    return Requested.model_validate({field: _read(field, value) for field, value in given.items()})


def instant_from(text: str, option: str) -> int:
    """A time with its zone as epoch ms. Raises DefinitionError that names the option."""
    try:
        return parse_instant(text.strip())
    except InstantError as problem:
        hint = problem.hint[:1].upper() + problem.hint[1:]
        raise DefinitionError(f"{option}: {problem.what}", hint=hint) from None


def _read(field: str, value: Any) -> Any:
    reader = _READERS.get(field)
    return value if value is None or reader is None else reader(value, f"--{field.replace('_', '-')}")


def _instant(value: Any, option: str) -> str:
    return format_instant(instant_from(str(value), option))


def _as_of(value: Any, option: str) -> dict[int, int]:
    try:
        offsets = end_offsets(str(value))
    except ValueError:
        offsets = {}
    if not offsets:
        raise DefinitionError(
            f"{option}: {str(value)[:60]!r} is not a list of end offsets",
            hint="Write partition=offset pairs: 0=120,1=95.",
        )
    return dict(sorted(offsets.items()))


def _mark(value: Any, option: str) -> str:
    if not _MARK.fullmatch(text := str(value)):
        raise DefinitionError(
            f"--as-of: {text[:60]!r} is no list of end offsets, and no name of a mark",
            hint="Write partition=offset pairs (0=120,1=95), the folder of a checkpoint, or a consumer group.",
        )
    return text


def _one_of(choices: Iterable[str]) -> Callable[[Any, str], str]:
    known = [str(choice) for choice in choices]

    def read(value: Any, option: str) -> str:
        if value not in known:
            what = f"{option}: {str(value)[:60]!r}"
            raise DefinitionError(what, hint=f"Use {', '.join(known[:-1])} or {known[-1]}.")
        return str(value)

    return read


_READERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("from", "to", "until"), _instant),
    "as_of": _as_of,
    "as_of_mark": _mark,
    "mode": _one_of(Mode),
    "panes": _one_of(("last", "all")),
    "dry_run": _one_of(("none", *DryRun)),
    "publish": _one_of(Policy),
}


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
