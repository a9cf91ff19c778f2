"""What a publication is: the windows that a run publishes, what they stand for, and the facts of their revisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.side_tables import SideChange
from spark_jobs.lakehouse.tables import starts_within
from spark_jobs.replay.rounding import rounded_columns

REVISIONS = "revisions"
"""The branch that has every value a window ever had."""
RANGE = "rewindow.range"
"""A property in the summary of the snapshot that published a run, beside `RUN_ID`."""

FACTS = StructType(
    [
        StructField("revision", IntegerType()),
        StructField("cause", StringType()),
        StructField("run_id", StringType()),
        StructField("as_of", StringType()),
        StructField("valid_from", TimestampType()),
        StructField("valid_to", TimestampType()),
    ]
)
"""The columns that every revision has beside the window, its values and its counts."""
LIVE = "rw_live"
"""The column that says of a staged window whether the live job has emitted its value."""
PANE_COLUMN = "pane"


class Cause(StrEnum):
    """Why a window has the value that it has."""

    LIVE = "live"
    BACKFILL = "backfill"
    LATE_ARRIVALS = "late_arrivals"
    LOGIC_CHANGE = "logic_change"
    SOURCE_REPAIR = "source_repair"
    ERASURE = "erasure"
    RETRACTION = "retraction"
    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class TableAt:
    """The table at a moment: the snapshot of its windows, its id, and the sequence number of its last commit.

    All are None where there was no table, `snapshot` also where it was empty.
    """

    snapshot: int | None = None
    table_id: str | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class Publication:
    """What is to be published. `identity` names the columns that tell one window (or pane) from another.

    `staged`: windows, and the bounds of rounded values beside them (`spark_jobs.replay.rounding`): a value within its
    bound of the published one is no change. `began`: the table when the run began. `in_scope` keeps of earlier
    windows those that the staged ones stand for: one of them that is not staged is retracted. `cause()` gives the cause
    of a change from the columns `old_run_id` (null: no window before) and `rw_start` (the window's start). `branch`
    names the branches that this process writes on. `rivals()` names the runs that the ledger says were published in the
    same range since this one began; it is called where the table's history does not reach back so far. `sides` says
    what changes in the side tables with the same commit. `with_live` adds the column `LIVE` to staged windows: whether
    the live job has emitted this value; None: nothing is known about that. `is_everything`: all that is published is in
    scope, and any other run is a rival. `former`: columns that told windows apart under earlier definitions and do not
    any more. `repairs`: somebody else has changed the table, so the staged windows are compared with what readers see,
    and not only with the branch of revisions. `kept_as_of`: the end offsets that are said of rows in the state
    `history_gone`; None: `as_of`.
    """

    run_id: str
    span: TimeRange
    staged: DataFrame
    identity: tuple[str, ...]
    in_scope: Callable[[DataFrame], DataFrame]
    cause: Callable[[], Column]
    as_of: dict[int, int]
    branch: str
    rivals: Callable[[], Sequence[str]]
    sides: tuple[SideChange, ...] = ()
    with_live: Callable[[DataFrame], DataFrame] | None = None
    began: TableAt | None = None
    is_everything: bool = False
    former: tuple[str, ...] = ()
    repairs: bool = False
    kept_as_of: dict[int, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The staged columns that are published: without the bounds of rounded values."""
        bounds = rounded_columns(self.staged.columns).values()
        return tuple(c for c in self.staged.columns if c not in bounds)

    @property
    def row_identity(self) -> tuple[str, ...]:
        """The columns that tell one published row from another, former keys too: those are null in new rows.

        A pane is a number of a window: where only the last one is published, it is a value.
        """
        return (*self.identity, *(c for c in self.former if c != PANE_COLUMN))

    @property
    def may_repeat(self) -> bool:
        """Whether several published rows can have one identity: panes of before, or what somebody else has added."""
        return self.repairs or (PANE_COLUMN in self.former and PANE_COLUMN not in self.identity)

    @property
    def in_span(self) -> Column:
        """A condition on windows: those in scope have it, others may."""
        return F.lit(True) if self.is_everything else starts_within(self.span)
