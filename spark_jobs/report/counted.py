"""The parts of a report that are made of what a run counted: what changed, the watermark, late records, the advisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.runs.life.documents import Document
from spark_jobs.runs.life.restated import Restated

Texts = tuple[str, ...]
Counts = dict[str, int]


class Part(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, json_schema_serialization_defaults_required=True)

    @model_validator(mode="before")
    @classmethod
    def _said(cls, data: Any) -> Any:
        """What is null or an empty text is not said: the default stands for it."""
        return {k: v for k, v in data.items() if v not in (None, "")} if isinstance(data, Mapping) else data

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, by the names in the file."""
        return self.model_dump(mode="json", by_alias=True)


class Bucket(Part):
    start: int = Field(description="begin of a bar; bars without a change are left out")
    inserted: int = Field(default=0, description="new windows")
    updated: int = Field(default=0, description="windows with another value")
    retracted: int = Field(default=0, description="windows that do not exist any more")
    was_open: int = Field(default=0, description="windows that had been published open and are not as they were")
    outgrown: int = Field(default=0, description="open windows in whose place another one is")


class Strip(Part):
    width: int = Field(description="one bar of the chart is so long")
    buckets: tuple[Bucket, ...] = Field(default=(), description="the bars")


class ColumnChange(Part):
    name: str = Field(description="a column")
    windows: int = Field(default=0, description="updated windows in which it differs")
    from_null: int = Field(default=0, description="of these, windows in which it had no value before")
    to_null: int = Field(default=0, description="of these, windows in which it has no value any more")
    total: Any = Field(
        default=None, description="of the other ones, the sum of the differences; null: not a count or a sum"
    )
    least: Any = Field(default=None, description="the smallest difference; null: not a number")
    most: Any = Field(default=None, description="the largest difference")


class TopWindow(Part):
    change: str = Field(description="`inserted`, `updated` or `retracted`")
    cause: str = Field(default="", description="why")
    size: float = Field(default=0.0, description="from 0 to 1, against the largest change of the run")
    revision: int | None = Field(default=None, description="the number of the new revision")
    start: int = Field(description="start of the window")
    end: int = Field(description="end of the window")
    key: dict[str, Any] = Field(default={}, description="values of the keys")
    pane: dict[str, Any] = Field(default={}, description="which firing, where a window has several rows")
    before: dict[str, Any] | None = Field(default=None, description="values before, by column; null for a new window")
    after: dict[str, Any] = Field(default={}, description="values after, by column; texts are cut after 200 characters")


class ChangedWindows(Part):
    """The part `changes` of the facts."""

    counts: Counts = {}
    causes: Counts = {}
    strip: Strip | None = Field(default=None, description="changed windows over time")
    keys: Texts = Field(default=(), description="names of the keys")
    aggregates: Texts = Field(default=(), description="names of the aggregates")
    columns: tuple[ColumnChange, ...] = Field(default=(), description="differences by column")
    top: tuple[TopWindow, ...] = Field(default=(), description="at most twenty windows, the largest changes first")


COUNTS = tuple(name for name in RunCounts.names() if not name.startswith(("records_read", "records_quarantined")))
"""What the part `changes` says of the run's counts; the records that it read are in other parts."""

_Counted: type[ChangedWindows] = create_model(
    "_Counted",
    __base__=ChangedWindows,
    **{
        name: (int | None, Field(default=None, description=RunCounts.model_fields[name].description)) for name in COUNTS
    },  # pyright: ignore[reportArgumentType, reportCallIssue]
)


class Changes(_Counted):  # pyright: ignore[reportGeneralTypeIssues]
    counts: Counts = Field(
        default={},
        description="windows by change: `inserted`, `updated`, `retracted`, `was_open`, `outgrown` (see [tables]"
        "(tables.md)); `bookkeeping`: only `closed_at` differs",
    )
    restated: Restated | None = Field(
        default=None, description="what of the numbers that readers had changes; null: no run of this version"
    )
    changed: int | None = Field(default=None, description="windows that change, without bookkeeping")
    published: bool = Field(default=False, description="whether readers see the changes; false: they would change")
    causes: Counts = Field(default={}, description="windows by [cause](tables.md)")
    causes_by_change: dict[str, Counts] = Field(default={}, description="windows by change and cause")
    windows_recomputed: int | None = Field(
        default=None, description="published windows that the run computed again, with those that it retracts"
    )
    unchanged: int | None = Field(default=None, description="of them, those whose numbers stay")
    match_share: float | None = Field(
        default=None, description="`unchanged`, as a share of the windows that readers had and that were computed again"
    )
    late_share: float | None = Field(
        default=None, description="the share of pairs (record, window) in which the record was late, dropped or not"
    )
    dropped_share: float | None = Field(default=None, description="the share of pairs that were dropped")
    in_words: dict[str, str] = Field(default={}, description="the figures as the page words them")


class Shown(Part):
    line: int = Field(default=0, description="points of the watermark's line")
    closes: int = Field(default=0, description="windows that closed")
    on_time: int = Field(default=0, description="records on time that are shown")
    behind: int = Field(default=0, description="records behind the watermark that are shown")
    late: int = Field(default=0, description="late records that are shown")


class View(Part):
    """One chart of the watermark. The points are in `facts.json` only."""

    start: int = Field(alias="from", description="begin of the chart's processing time")
    end: int = Field(alias="to", description="its end")
    one_in: int = Field(default=1, description="one of so many records is shown")
    shown: Shown = Field(default=Shown(), description="how much of each is shown")

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "line" not in data:
            return data
        drawn = {name: data.get(name) for name in Shown.model_fields}
        return {**data, "shown": {name: len(points) for name, points in drawn.items() if isinstance(points, list)}}


class Standstill(Part):
    start: int = Field(alias="from", description="begin of a time in which the watermark did not move")
    end: int = Field(alias="to", description="its end")
    watermark: int = Field(description="where it stood")


class Idle(Part):
    count: int = Field(default=0, description="idle times of partitions")
    longest: tuple[tuple[int, int, int], ...] = Field(default=(), description="partition, from, to of the longest ones")


class Watermark(Part):
    resolution: int = Field(description="steps of the line are at least so long")
    by_partition: bool = Field(
        default=False, description="each partition has its own stream time (Kafka Streams), and no line is drawn"
    )
    overview: View = Field(description="the chart of the whole range")
    zoom: View | None = Field(default=None, description="the chart of a part of it; null: the whole fits one chart")
    standstills: tuple[Standstill, ...] = Field(default=(), description="the longest ones")
    idle: Idle | None = Field(default=None, description="null without `idleness` in the definition")


class Levels(Part):
    p50: int | None = Field(default=None, description="half")
    p90: int | None = Field(default=None, description="90 %")
    p99: int | None = Field(default=None, description="99 %")
    max: int | None = Field(default=None, description="all")


class Quantiles(Part):
    missed_by: Levels = Field(default=Levels(), description="from the final close of the window to the arrival")
    delay: Levels = Field(default=Levels(), description="from the event time to the arrival")


class LateRecord(Part):
    partition: Any = Field(default=None, description="of a record that missed its window by the most")
    number: int | None = Field(default=None, description="its offset, or its place in the sequence")
    arrival: int | None = Field(default=None, description="its arrival")
    event_time: int = Field(description="its event time")
    missed_by: int | None = Field(default=None, description="from the close to the arrival")


class LateGroup(Part):
    records: int = Field(default=0, description="its records in the basis")
    late: int = Field(default=0, description="late records of the run")
    late_in_basis: int = Field(default=0, description="late records among those of the basis")
    bins: tuple[int, ...] = Field(default=(), description="late records in each bin")


class LatePartition(LateGroup):
    partition: Any = Field(default=None, description="a partition")
    quantiles: Quantiles = Field(default=Quantiles(), description="how late its records are")


class LateHour(LateGroup):
    hour: int = Field(description="an hour of the day of the event time, UTC")


class Late(Part):
    records: int = Field(default=0, description="late records of the run")
    basis: int = Field(
        default=0,
        description="what shares are of: the records that the run read as new, of the advisor's event times",
    )
    latest: tuple[LateRecord, ...] = Field(default=(), description="those that missed their window by the most")
    partitions: int = Field(default=0, description="partitions with records")
    edges: tuple[int, ...] = Field(default=(), description="lower bounds of the bins, from the close on")
    bins: tuple[int, ...] = Field(default=(), description="late records in each bin")
    quantiles: Quantiles = Field(default=Quantiles(), description="how late they are")
    by_partition: tuple[LatePartition, ...] = Field(default=(), description="by partition")
    by_hour: tuple[LateHour, ...] = Field(default=(), description="by hour of the day")


class Setting(Part):
    tolerance: int = Field(description="bound + allowed lateness")
    behind: int = Field(description="records behind the watermark with it")
    closed: int = Field(description="records whose window had closed with it: dropped")
    wait: int | None = Field(
        default=None, description="how much later than its end a window comes out, median; null: unknown"
    )
    on_time_share: float | None = Field(default=None, description="the share of records on time")
    allowed_lateness: int | None = Field(
        default=None, description="the lateness if the bound stays; null: less than the bound"
    )
    refires: int | None = Field(default=None, description="records that would make their window fire again then")


class Recommended(Part):
    on_time: float = Field(description="a share of records on time")
    setting: Setting | None = Field(default=None, description="the least that reaches it; null: none that was tried")


class EventTimes(Part):
    start: int = Field(alias="from", description="the first event time")
    end: int = Field(alias="to", description="the last event time")


class Advisor(Part):
    parameter: str = Field(description="the setting that the table varies: `bound` or `lag`, `delay`, `grace`")
    generator: str = Field(default="", description="the definition's generator")
    configured: int = Field(description="the definition's bound")
    lateness: int | None = Field(default=None, description="its allowed lateness; null: for ever")
    resolution: int = Field(default=0, description="the settings are exact to so many ms")
    exact: bool = Field(default=False, description="whether the counts are exact")
    sessions: bool = Field(
        default=False, description="whether windows are sessions: then the counts are an upper bound"
    )
    records: int = Field(description="records that were looked at, those of earlier runs too")
    event_times: EventTimes = Field(description="where they lie")
    tolerances: tuple[Setting, ...] = Field(default=(), description="every setting that was tried")
    now: Setting | None = Field(default=None, description="the definition's own; null: an unlimited lateness")
    bound_only: Setting | None = Field(default=None, description="the definition's bound without a lateness")
    recommended: tuple[Recommended, ...] = Field(default=(), description="settings for a share of records on time")

    @property
    def has_lateness(self) -> bool:
        """Whether the live job's engine knows an allowed lateness: Flink alone."""
        return self.parameter in ("bound", "lag")


Points = tuple[tuple[int, ...], ...]


class DrawnView(View):
    """One chart of the watermark with its points: `line` [arrival, watermark], `lag` [from, to, least, most], `closes`
    [arrival, window end], and of the sampled records [arrival, event time]."""

    line: Points = ()
    lag: Points = ()
    closes: Points = ()
    on_time: Points = ()
    behind: Points = ()
    late: Points = ()


class DrawnWatermark(Watermark):
    overview: DrawnView  # pyright: ignore[reportIncompatibleVariableOverride]
    zoom: DrawnView | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def without_points(self) -> Watermark:
        """What the report says of it."""
        return Watermark.model_validate(self.model_dump(by_alias=True))


class Facts(Document):
    """`facts.json`: what the report of a run shows that only Spark can find, with the points of its charts."""

    FILE: ClassVar[str] = "facts.json"

    format: str = "rewindow-facts/1"
    changes: ChangedWindows | None = None
    late: Late | None = None
    watermark: DrawnWatermark | None = None
    advisor: Advisor | None = None
