"""What is Flink SQL's own of a live job: its windows are computed by other operators than a DataStream job's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spark_jobs.definition.fields import KNOWN_ZONE, PositiveDuration, Refusal, Section, Text
from spark_jobs.definition.union import History, UnionHistory
from spark_jobs.definition.watermark import Watermark
from spark_jobs.definition.window import CumulativeWindow, SessionWindow, SlidingWindow, TumblingWindow, WindowSection


class FlinkSql(Section):
    """The live job is a query of Flink SQL. Left out: a DataStream job."""

    windows: Literal["table_function", "group_by"] = Field(
        default="table_function",
        description="table_function: TABLE(TUMBLE(...)). group_by: the older GROUP BY TUMBLE(...), in one phase.",
    )
    aggregation: Literal["auto", "one_phase", "two_phase"] = Field(
        default="auto",
        description="`table.optimizer.agg-phase-strategy`. auto, Flink's default, is two phases for table functions "
        "other than SESSION: each source subtask holds its records back until its own watermark reaches the next end.",
    )
    checkpoint_interval: PositiveDuration | None = Field(
        default=None,
        description="`execution.checkpointing.interval`: a checkpoint ends what subtasks hold back. A record that only "
        "a checkpoint decides is undecided; left out, any may be.",
        examples=["1 min"],
    )
    time_zone: Annotated[Text | None, KNOWN_ZONE] = Field(
        default=None,
        description="`table.local-time-zone`, where the event time is a TIMESTAMP_LTZ: windows lie in this zone's wall "
        "clock, and so do window_start and window_end. An hour that clocks show twice is one window.",
        examples=["Europe/Berlin"],
    )

    def is_in_two_phases(self, window: WindowSection) -> bool:
        """Whether Flink plans two phases."""
        return has_two_phases(self.windows, self.aggregation, is_session=isinstance(window, SessionWindow))


def has_two_phases(windows: str, aggregation: str, *, is_session: bool) -> bool:
    """Whether Flink plans two phases, by the words of `FlinkSql`."""
    return windows == "table_function" and not is_session and aggregation != "one_phase"


def refuse_other_jobs(section: FlinkSql, window: WindowSection, watermark: object, history: History) -> None:
    """Raise Refusal for what a query of Flink SQL cannot be, and for what is not replayed."""
    if not isinstance(watermark, Watermark):
        raise Refusal("belongs to engine `flink`", "leave it out")
    if isinstance(history, UnionHistory) and section.is_in_two_phases(window):
        hint = "write `aggregation: one_phase`: it is right for records that are not behind their own subtask"
        raise Refusal("two phases behind a union are not replayed", hint, ("aggregation",))
    if section.time_zone is None:
        return
    is_by_expression = isinstance(window, SessionWindow) and window.gap_expression is not None
    if is_by_expression or not isinstance(window, TumblingWindow | SlidingWindow | CumulativeWindow | SessionWindow):
        raise Refusal("does not belong to these windows", "leave it out", ("time_zone",))
    if isinstance(window, TumblingWindow) and window.time_zone is not None:
        raise Refusal("there is `window.time_zone` too", "keep one of the two", ("time_zone",))
