"""What a sample of emitted rows beside the history's windows says about the section `live:`, in plain sentences.

Everything here is arithmetic on a few thousand rows in the driver; `spark_jobs.comparison.live_check` reads them.

`readings_of` lists the ways in which the bounds of emitted windows can be meant: a unit, a clock, the other bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, OFFSETS, emitted_name, live_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows, Window
from spark_jobs.formatting import exact_length, percent
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.grid import divided
from spark_jobs.replay.spec import complete_name

HALF_HOUR = 1_800_000
"""Time zones differ by multiples of it, nearly all (ms)."""
_LONGEST_OFFSET = 28
"""Time zones are up to 14 hours, 28 half hours, from UTC."""


class Meaning(StrEnum):
    """How the bounds of the emitted windows could be meant."""

    AS_DEFINED = "as defined"
    OTHER_UNIT = "another unit"
    LOCAL_TIME = "local time"
    OTHER_BOUND = "the other bound"
    LAST_INSTANT = "the last instant"


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a bound: `bound * multiplier / divisor + shift` (epoch ms)."""

    meaning: Meaning
    shift: int = 0
    multiplier: int = 1
    divisor: int = 1

    def start_of(self, bound: Column) -> Column:
        scaled = bound if self.multiplier == 1 else F.call_function("try_multiply", bound, F.lit(self.multiplier))
        return divided(scaled, self.divisor) + F.lit(self.shift)

    def time_of(self, bound: int) -> int:
        return bound * self.multiplier // self.divisor + self.shift


def readings_of(pipeline: Pipeline) -> tuple[Reading, ...]:
    """What is tried, the definition's own reading first."""
    found = [Reading(Meaning.AS_DEFINED)]
    windows = windows_of(pipeline)
    length = windows.fixed_length
    if length is not None:
        found += [Reading(Meaning.OTHER_BOUND, -length), Reading(Meaning.OTHER_BOUND, length)]
    found += [Reading(Meaning.LAST_INSTANT, shift) for shift in (1, 1000)]
    found += [
        Reading(Meaning.LOCAL_TIME, sign * steps * HALF_HOUR)
        for steps in range(1, _LONGEST_OFFSET + 1)
        for sign in (1, -1)
    ]
    found += [
        Reading(Meaning.OTHER_UNIT, multiplier=1000),
        Reading(Meaning.OTHER_UNIT, divisor=1000),
        Reading(Meaning.OTHER_UNIT, multiplier=1_000_000),
        Reading(Meaning.OTHER_UNIT, divisor=1_000_000),
    ]
    return tuple(found)


_MOST = 0.9
_FEW = 0.5
_ZONES = (
    "UTC", "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Europe/Istanbul", "Asia/Dubai", "Asia/Kolkata",
    "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney", "America/Sao_Paulo", "America/New_York", "America/Chicago",
    "America/Denver", "America/Los_Angeles",
)  # fmt: skip
"""Examples to name; any IANA name can be written."""

Frame = Any
"""A pandas DataFrame. Its type stubs know every method as one of ten types."""


class Subject(StrEnum):
    """What a finding is about."""

    ROWS = "rows"
    WINDOWS = "windows"
    KEYS = "keys"
    VALUES = "values"
    EMITTED_AT = "emitted_at"
    LAST_OFFSETS = "last_offsets"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the section `live:`, and what to write instead where it does not fit."""

    subject: Subject
    is_problem: bool
    what: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LiveSample:
    """Emitted rows (`EmittedRows.sample`, and `rw_id`), and the windows that they can mean (`found`)."""

    pipeline: Pipeline
    rows: Frame
    found: Frame
    readings: tuple[Reading, ...]
    values: tuple[str, ...]
    known_keys: float
    """The share of the rows' keys that the history has in any window; looked up only where `found` is empty."""
    history_keys: tuple[dict[str, Any], ...]
    """A few of the history's keys, there too only."""
    history_times: TimeRange
    end_offsets: Mapping[int, int]
    in_topic: bool

    @cached_property
    def good(self) -> Frame:
        """The rows that can be read."""
        return self.rows[self.rows["why"].isna()]

    @cached_property
    def scores(self) -> Frame:
        """By reading (the index): the share of rows with a window, and of those whose values are all equal."""
        if self.found.empty:
            return pd.DataFrame([{"there": 0.0, "equal": 0.0}] * len(self.readings))
        every = self.found[[f"rw_same_{name}" for name in self.values]].all(axis=1)
        equal = self.found[every].groupby("rw_reading")["rw_id"].nunique()
        there = self.found.groupby("rw_reading")["rw_id"].nunique()
        shares = pd.DataFrame({"there": there, "equal": equal}).reindex(range(len(self.readings)))
        return shares.fillna(0) / len(self.good)

    @cached_property
    def best(self) -> int:
        """The number of the reading that is believed: the definition's own unless another is clearly better."""
        own, there = self.scores.loc[0], self.scores["there"]
        best = int(self.scores["equal"].idxmax())
        if self.scores.loc[best, "equal"] > max(2 * own["equal"], own["equal"] + 0.1):
            return best
        # Where no value agrees: a reading alone that has windows at all.
        nearly_all = there[there > _MOST]
        return int(nearly_all.index[0]) if own["there"] < 0.1 and len(nearly_all) == 1 else 0

    @property
    def reading(self) -> Reading:
        return self.readings[self.best]

    @cached_property
    def meant(self) -> Frame:
        """The windows of `found` under the reading that is believed."""
        return self.found if self.found.empty else self.found[self.found["rw_reading"] == self.best]


def findings_of(sample: LiveSample) -> tuple[Finding, ...]:
    """Everything that the sample says, in the order in which it should be put right."""
    if sample.rows.empty:
        return (Finding(Subject.ROWS, True, "there is no emitted row", "Correct `live.source`."),)
    if sample.good.empty:
        return tuple(_rows(sample))
    parts = (_rows, _windows, _keys, _values, _emitted_at, _last_offsets)
    return tuple(finding for part in parts for finding in part(sample))


def _percent(share: float) -> str:
    return percent(share, 1)


def _rows(sample: LiveSample) -> Iterator[Finding]:
    unread = len(sample.rows) - len(sample.good)
    if unread:
        reason = sample.rows["why"].dropna().iloc[0]
        what = f"{unread:,} of {len(sample.rows):,} rows cannot be read, the first: {reason}"
        hint = "Correct `live.source` or `live.window`." if unread > len(sample.good) else ""
        yield Finding(Subject.ROWS, unread > len(sample.good), what, hint)
    live = live_of(sample.pipeline)
    names = [*sample.pipeline.keys, START, END]
    several = sample.good.groupby(names, dropna=False).size().max() if len(sample.good) else 0
    ordered = live.pane or live.order or live.emitted_at or sample.in_topic
    if several > 1 and not ordered:
        yield Finding(
            Subject.ROWS, True, f"some windows have up to {several} rows, and nothing says which one counts",
            "Name the column that grows from row to row under `live.pane`, `live.order` or `live.emitted_at`.",
        )  # fmt: skip


def _windows(sample: LiveSample) -> Iterator[Finding]:
    reading, share = sample.reading, float(sample.scores.loc[sample.best, "there"])
    if reading.meaning is not Meaning.AS_DEFINED:
        own = _percent(float(sample.scores.loc[0, "equal"]))
        better = _percent(float(sample.scores.loc[sample.best, "equal"]))
        yield Finding(
            Subject.WINDOWS, True,
            f"as `live.window` says, {own} of the rows agree with the history; with {_shown(reading)}, {better} do",
            _mended(sample, reading),
        )  # fmt: skip
        return
    wrong_end = _wrong_ends(sample)
    if wrong_end is not None:
        yield wrong_end
    elif sample.known_keys < _FEW:
        return  # no window can be the history's: see the keys
    elif share < _FEW:
        first, last = (format_instant(int(time)) for time in (sample.good[START].min(), sample.good[START].max()))
        times = sample.history_times
        yield Finding(
            Subject.WINDOWS, True,
            f"{_percent(share)} of the rows are of a window that the history has; the rows' windows start from {first} "
            f"to {last}, the history's event times lie from {format_instant(times.start)} to "
            f"{format_instant(times.end - 1)}",
            "Compare `live.window`, `window` and `keys` with the live job.",
        )  # fmt: skip
    else:
        yield Finding(Subject.WINDOWS, False, f"{_percent(share)} of the rows are of a window that the history has")


def _wrong_ends(sample: LiveSample) -> Finding | None:
    """Ends that are no end of the definition's windows, though the starts are starts."""
    windows = windows_of(sample.pipeline)
    if not isinstance(windows, AlignedWindows):
        return None
    beside: list[int] = []
    for start, end in sample.good[[START, END]].astype("int64").itertuples(index=False):
        if windows.first_start_at_or_after(start) == start and Window(start, end) not in windows.beginning_at(start):
            ends = [window.end for window in windows.beginning_at(start) if window.start == start]
            beside += [end - min(ends, key=lambda known: abs(known - end))] if ends else []
    if len(beside) <= len(sample.good) * (1 - _FEW):
        return None
    usual = pd.Series(beside).mode().iloc[0]
    if usual in (-1, -1000):
        missing = "1 ms" if usual == -1 else "1 s"
        return Finding(
            Subject.WINDOWS, True, f"the windows end {missing} before the definition's: their end is a last instant",
            f"Write `live.window.inclusive_end: {missing}`.",
        )  # fmt: skip
    longer = "longer" if usual > 0 else "shorter"
    return Finding(
        Subject.WINDOWS, True,
        f"most windows are {exact_length(abs(int(usual)))} {longer} than those of the definition",
        "Compare `window` with the live job.",
    )  # fmt: skip


def _shown(reading: Reading) -> str:
    match reading.meaning:
        case Meaning.OTHER_UNIT:
            factor = reading.multiplier if reading.multiplier > 1 else reading.divisor
            return f"bounds that are {factor:,} times as {'large' if reading.multiplier > 1 else 'small'}"
        case Meaning.LAST_INSTANT:
            return f"bounds that are {exact_length(reading.shift)} later"
        case _:
            return f"starts that are {exact_length(abs(reading.shift))} {'later' if reading.shift > 0 else 'earlier'}"


def _mended(sample: LiveSample, reading: Reading) -> str:
    """What to write so that the bounds are read as `reading` does."""
    live = live_of(sample.pipeline)
    unit = live.window.unit
    match reading.meaning:
        case Meaning.OTHER_UNIT:
            units = ("us", "ms", "s")
            steps = {1000: 1, 1_000_000: 2}
            step = steps.get(reading.multiplier, 0) - steps.get(reading.divisor, 0)
            index = units.index(unit) + step if unit in units else -1
            return f"Write `live.window.unit: {units[index]}`." if 0 <= index < 3 else "Correct `live.window.unit`."
        case Meaning.LAST_INSTANT:
            return f"Write `live.window.inclusive_end: {exact_length(reading.shift)}`."
        case Meaning.OTHER_BOUND:
            bound = "the end" if reading.shift < 0 else "a start one window earlier"
            zones = _zones(sample, reading.shift)
            also = f" Or the clock is a local one: `live.window.time_zone`, such as {zones}." if zones else ""
            return f"The column of the start seems to hold {bound}: correct `live.window`.{also}"
        case _:
            zones = _zones(sample, reading.shift)
            such = f", such as {zones}" if zones else ""
            return f"The bounds look like local times: write `live.window.time_zone`{such}."


def _zones(sample: LiveSample, shift: int) -> str:
    """Zones whose clock was `-shift` ahead of UTC at the sample's windows."""
    if shift % HALF_HOUR:
        return ""
    when = datetime.fromtimestamp(int(sample.good[START].median()) / 1000, UTC)
    offset = timedelta(milliseconds=-shift)
    return " or ".join([zone for zone in _ZONES if when.astimezone(ZoneInfo(zone)).utcoffset() == offset][:3])


def _keys(sample: LiveSample) -> Iterator[Finding]:
    if not sample.pipeline.keys:
        return
    if sample.known_keys < _FEW:
        some = sample.good[list(sample.pipeline.keys)].drop_duplicates().head(3).to_dict("records")
        yield Finding(
            Subject.KEYS, True,
            f"{_percent(sample.known_keys)} of the keys are in the history; rows have {_listed(some)}, the history "
            f"{_listed(sample.history_keys[:3])}",
            "Correct `live.keys`.",
        )  # fmt: skip
        return
    if sample.meant.empty:
        return
    other = float(1 - sample.meant["rw_same_keys"].mean())
    if other > 0:
        yield Finding(
            Subject.KEYS, True, f"{_percent(other)} of the keys differ from the history's in case or spaces",
            "Write expressions under `live.keys`, such as upper(trim(name)).",
        )  # fmt: skip
    else:
        yield Finding(Subject.KEYS, False, "the keys of these windows are the history's")


def _listed(keys: Any) -> str:
    return ", ".join("/".join(str(value) for value in one.values()) for one in keys) or "none"


def _values(sample: LiveSample) -> Iterator[Finding]:
    if sample.meant.empty:
        return
    pairs = sample.meant.merge(sample.good, on="rw_id", suffixes=("_history", ""))
    for name in sample.values:
        share = float(sample.meant.groupby("rw_id")[f"rw_same_{name}"].max().mean())
        if share >= _FEW:
            what = f"{name}: {_percent(share)} of the values are those over all records; late records explain others"
            yield Finding(Subject.VALUES, False, what if share < 1 else f"{name}: all values are the history's")
            continue
        what = f"{name}: {_percent(share)} of the values are the history's"
        explained = _explained(sample, pairs, name)
        yield Finding(Subject.VALUES, True, what + explained[0], explained[1])


def _explained(sample: LiveSample, pairs: Frame, name: str) -> tuple[str, str]:
    """Why the values of an aggregate differ, as it seems: the rest of the sentence, and a hint."""
    nothing = "", f"Compare the aggregate `{name}` and `live.values.{name}` with the live job."
    emitted = pairs[emitted_name(name)]
    if emitted.isna().mean() > _FEW:
        return f"; {_percent(float(emitted.isna().mean()))} are null", f"Correct `live.values.{name}`."
    numbers: Frame = pd.to_numeric(emitted, errors="coerce")
    if numbers.isna().all():
        return "", f"The emitted column is no number: cast it under `live.values.{name}`."
    for other in sample.pipeline.aggregates:
        column = complete_name(other)
        if other == name or column not in pairs:
            continue
        if (numbers == pairs[column]).mean() > max(_FEW, 2 * (numbers == pairs.get(complete_name(name))).mean()):
            return f"; they look like `{other}`", f"Correct `live.values.{name}`."
    own = pairs.get(complete_name(name))
    if own is None:
        return nothing
    known = (own != 0) & own.notna() & numbers.notna()
    ratios = (numbers[known] / own[known]).round(9)
    if len(ratios) and (usual := ratios.mode().iloc[0]) != 1 and (ratios == usual).mean() > _FEW:
        factor = f"{usual:,.10g} times" if usual >= 1 else f"1/{1 / usual:,.10g} of"
        return f"; they are {factor} the history's", f"Is it another unit? Scale it under `live.values.{name}`."
    return nothing


def _emitted_at(sample: LiveSample) -> Iterator[Finding]:
    live = live_of(sample.pipeline)
    if live.emitted_at is None:
        return
    rows = sample.good.dropna(subset=[AT])
    if rows.empty:
        yield Finding(
            Subject.EMITTED_AT,
            True,
            "no row has a readable time",
            "Correct `live.emitted_at` or `live.emitted_at_unit`.",
        )
        return
    ends = rows[END].map(lambda end: sample.reading.time_of(int(end)))
    late = rows[AT].astype("int64") - ends
    usual = int(late.median())
    early = float((late < 0).mean())
    times = f"rows come {exact_length(abs(usual))} {'after' if usual >= 0 else 'before'} their window's end (median)"
    if early > 0.1:
        yield Finding(
            Subject.EMITTED_AT, True, f"{_percent(early)} of the rows come before their window's end; {times}",
            "Correct `live.emitted_at_unit` or the column's zone: a watermark cannot close a window before its end.",
        )  # fmt: skip
    elif usual > 366 * 86_400_000:
        yield Finding(
            Subject.EMITTED_AT, True, times,
            "If the job has worked through old records, its clock says nothing here: leave `live.emitted_at` out.",
        )  # fmt: skip
    else:
        yield Finding(Subject.EMITTED_AT, False, times)


def _last_offsets(sample: LiveSample) -> Iterator[Finding]:
    live = live_of(sample.pipeline)
    if live.last_offsets is None:
        return
    found: list[tuple[int, int]] = []
    for text in sample.good[OFFSETS].dropna():
        found += [(int(partition), int(offset)) for partition, offset in json.loads(text).items() if offset is not None]
    if not found:
        yield Finding(Subject.LAST_OFFSETS, True, "no row has one", "Correct `live.last_offsets`, or leave it out.")
        return
    unknown = sorted({partition for partition, _ in found} - set(sample.end_offsets))
    beyond = sum(offset >= sample.end_offsets[p] for p, offset in found if p in sample.end_offsets)
    if unknown:
        what = f"the history has no partition {', '.join(map(str, unknown[:5]))}"
        yield Finding(Subject.LAST_OFFSETS, True, what, "Compare `live.last_offsets` with the history's partitions.")
    elif beyond:
        what = f"{beyond:,} of {len(found):,} lie beyond the end of the history"
        yield Finding(Subject.LAST_OFFSETS, beyond > len(found) * _FEW, what, "Is it the last offset, or the next one?")
    else:
        yield Finding(Subject.LAST_OFFSETS, False, "all are offsets of the history")
