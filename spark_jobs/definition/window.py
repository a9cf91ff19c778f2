"""The window assigner: half-open windows [start, end), `start = ts - floorMod(ts - offset, size)` (golden rule 16)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from spark_jobs.definition.fields import (
    KNOWN_ZONE,
    Expression,
    PositiveDuration,
    Refusal,
    Section,
    SignedDuration,
    Text,
    read_positive_duration,
    shown,
    text_schema,
)
from spark_jobs.eventtime import durations
from spark_jobs.eventtime.durations import DAY, format_duration
from spark_jobs.eventtime.spark import intervals
from spark_jobs.eventtime.spark.intervals import CalendarInterval, IntervalError, parse_interval

_NO_OFFSET: Any = "0 s"  # as text, so that the JSON schema shows a duration
_OFFSET = "Shifts the windows' starts; smaller than the {}, may be negative."


def _within(limit: str) -> AfterValidator:
    """Flink's check: |offset| < size of tumbling windows, < slide of sliding ones."""

    def check(offset: int, info: ValidationInfo) -> int:
        length = info.data.get(limit)
        if length is not None and abs(offset) >= length:
            same = offset % length
            what = f"`{format_duration(offset)}` is not smaller than the {limit} ({format_duration(length)})"
            if same:
                raise Refusal(what, f"write `offset: {format_duration(same)}`, which gives the same windows")
            raise Refusal(what, "leave it out: the windows are the same")
        return offset

    return AfterValidator(check)


class WindowSection(Section):
    """What the sections `window` share."""

    follows_records: ClassVar[bool] = False
    """Whether windows lie where a key's records are, not at the same times for all keys."""


class TumblingWindow(WindowSection):
    """Windows of one size, side by side; with a time zone, calendar days of that zone."""

    type: Literal["tumbling"] = Field(description="Kind of window: tumbling.")
    size: PositiveDuration = Field(description="Length of a window.", examples=["1 h"])
    offset: Annotated[SignedDuration, _within("size")] = Field(
        _NO_OFFSET, description=_OFFSET.format("size"), examples=["15 min"]
    )
    time_zone: Annotated[Text | None, KNOWN_ZONE] = Field(
        None,
        description="IANA zone for windows of whole calendar days: they begin at local midnight, or when local clocks "
        "show `offset` (`6 h`: at six), and a day lasts 23 or 25 hours when the clocks change.",
        examples=["America/New_York"],
    )

    @field_validator("time_zone")
    @classmethod
    def _zone_of_whole_days(cls, zone: str | None, info: ValidationInfo) -> str | None:
        if zone is None:
            return None
        size = info.data.get("size", DAY)
        if size % DAY:
            raise Refusal(
                f"a time zone is for windows of whole days, and size is {format_duration(size)}",
                "write `size: 1 day`, or shift the windows with `offset`",
            )
        return zone


class SlidingWindow(WindowSection):
    """Windows of one size, one starting every slide: a record is in several, or, with slide > size, in one or none."""

    type: Literal["sliding"] = Field(description="Kind of window: sliding.")
    size: PositiveDuration = Field(description="Length of a window.", examples=["1 h"])
    gaps_between: bool = Field(
        False, description="Must be true when slide > size: records between two windows are in none."
    )
    slide: PositiveDuration = Field(description="From one window's start to the next.", examples=["15 min"])
    offset: Annotated[SignedDuration, _within("slide")] = Field(
        _NO_OFFSET, description=_OFFSET.format("slide"), examples=["5 min"]
    )

    @field_validator("slide")
    @classmethod
    def _gaps_are_declared(cls, slide: int, info: ValidationInfo) -> int:
        size, gaps = info.data.get("size"), info.data.get("gaps_between")
        if size is None or gaps is None:
            return slide
        if slide > size and not gaps:
            what = f"`{format_duration(slide)}` is longer than the size ({format_duration(size)})"
            hint = "write a shorter slide, or `gaps_between: true` if that is meant"
            raise Refusal(f"{what}: records between two windows would be in none", hint)
        if slide <= size and gaps:
            raise Refusal(f"slide {format_duration(slide)} leaves no gaps", "leave `gaps_between` out")
        return slide


class CumulativeWindow(WindowSection):
    """Windows that share a start and grow by a step up to the size, then begin anew."""

    type: Literal["cumulative"] = Field(description="Kind of window: cumulative.")
    size: PositiveDuration = Field(description="Length of the longest window.", examples=["1 day"])
    step: PositiveDuration = Field(description="By how much a window is longer than the one before.", examples=["1 h"])
    offset: Annotated[SignedDuration, _within("size")] = Field(
        _NO_OFFSET, description=_OFFSET.format("size"), examples=["15 min"]
    )

    @field_validator("step")
    @classmethod
    def _steps_fill_the_size(cls, step: int, info: ValidationInfo) -> int:
        size = info.data.get("size")
        if size is not None and size % step:
            raise Refusal(
                f"the size ({format_duration(size)}) is not a whole number of steps of {format_duration(step)}",
                "write a step that divides the size",
            )
        return step


def _read_gap(value: Any, info: ValidationInfo) -> int | CalendarInterval:
    """A gap in ms; with a `time_zone` an interval of its calendar, as Spark reads it."""
    if info.data.get("time_zone") is None:
        return read_positive_duration(value, info)
    if isinstance(value, CalendarInterval):
        return value
    try:
        interval = parse_interval(str(value))
    except IntervalError:
        raise Refusal(f"{shown(value)} is not an interval", "write one like `1 day` or `1 month 12 hours`") from None
    if interval.fixed_ms <= 0:
        raise Refusal(f"{shown(value)} is not positive", "write an interval longer than 0")
    return interval


_GAP_SCHEMA = text_schema(
    f"{durations.PATTERN}|{intervals.PATTERN}",
    f"A duration: {durations.EXAMPLES}; with a time_zone an interval of Spark: `1 day`, `1 month`.",
)


class SessionWindow(WindowSection):
    """Windows [ts, ts + gap) of one key, merged when they overlap or touch (golden rule 24)."""

    follows_records = True

    type: Literal["session"] = Field(description="Kind of window: session.")
    gap_expression: Expression | None = Field(
        None, description="SQL expression for each record's own gap, in milliseconds.", examples=["timeout_s * 1000"]
    )
    time_zone: Annotated[Text | None, KNOWN_ZONE] = Field(
        None,
        description="Engine `spark`, for a gap in days, weeks, months or years: the query's "
        "`spark.sql.session.timeZone`, by whose calendar they are counted. Without it a day has 24 hours.",
        examples=["America/New_York"],
    )
    gap: Annotated[int | CalendarInterval, BeforeValidator(_read_gap), _GAP_SCHEMA] | None = Field(
        None, description="Quiet time that ends a session.", examples=["30 min"]
    )

    @field_validator("gap")
    @classmethod
    def _one_gap(cls, gap: int | CalendarInterval | None, info: ValidationInfo) -> int | CalendarInterval | None:
        if "gap_expression" not in info.data:
            return gap
        if gap is not None and info.data["gap_expression"] is not None:
            raise Refusal("there is a `gap_expression` too", "keep one of the two")
        if gap is None and info.data.get("time_zone") is not None:
            raise Refusal("a time zone is for a gap in days or months", "write `gap: 1 day`, or leave out `time_zone`")
        if gap is None and info.data["gap_expression"] is None:
            raise Refusal("is missing", "write `gap: 30 min`, or a `gap_expression` that gives milliseconds")
        return gap

    @property
    def fixed_gap(self) -> int:
        """The gap (ms) of sessions without a `gap_expression`."""
        if not isinstance(self.gap, int):
            raise TypeError("the gap of these sessions has no fixed length")
        return self.gap

    @property
    def calendar_gap(self) -> CalendarInterval:
        """The gap of sessions with a `time_zone`."""
        if not isinstance(self.gap, CalendarInterval):
            raise TypeError("the gap of these sessions follows no calendar")
        return self.gap


class HoppingWindow(WindowSection):
    """Kafka Streams' windows of one size that start at the multiples of the advance."""

    type: Literal["hopping"] = Field(description="Kind of window: hopping.")
    size: PositiveDuration = Field(description="Length of a window.", examples=["1 h"])
    advance: PositiveDuration = Field(description="Distance of two starts; at most the size.", examples=["15 min"])

    @field_validator("advance")
    @classmethod
    def _advance_within_size(cls, advance: int, info: ValidationInfo) -> int:
        size = info.data.get("size")
        if size is not None and advance > size:
            raise Refusal(f"`{format_duration(advance)}` is longer than the size", "Kafka Streams refuses it too")
        return advance


class BetweenEventsWindow(WindowSection):
    """Kafka Streams' sliding windows: the records of a key that are at most the time difference apart."""

    follows_records = True

    type: Literal["between_events"] = Field(
        description="Kind of window: between_events; with engine `kafka_streams`, `sliding` is read so."
    )
    time_difference: PositiveDuration = Field(
        description="How far apart two records of one window are at most.", examples=["5 min"]
    )


Window = Annotated[
    TumblingWindow | SlidingWindow | CumulativeWindow | SessionWindow | HoppingWindow | BetweenEventsWindow,
    Field(discriminator="type"),
]
