"""A walk as plain data: the kind of history, the shape of the pipeline, and the steps.

The `repr` of a walk is Python that makes it again: a failure is printed so, and can be pasted into `known`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import StrEnum


class Kind(StrEnum):
    """What the history lies in."""

    FILES = "files"
    ICEBERG = "iceberg"
    DELTA = "delta"
    HIVE = "hive"
    VIEW = "view"
    TOPIC = "topic"
    UNION = "union"
    """Files with the records of partition 0, and an Iceberg table with those of partition 1, as one stream."""
    STITCHED = "stitched"
    """A topic, and an Iceberg table that its records are moved to."""
    QUERY = "query"
    """Files, and the checkpoint of a Structured Streaming query that has read them."""

    def __repr__(self) -> str:
        return f"Kind.{self.name}"


class Shape(StrEnum):
    """What the pipeline does."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"
    LOOKUP = "lookup"
    DEDUPLICATE = "deduplicate"
    COMPLETE = "complete"

    def __repr__(self) -> str:
        return f"Shape.{self.name}"

    @property
    def goes_on(self) -> bool:
        """Whether a night can go on from what the run before it has saved."""
        return self in (Shape.TUMBLING, Shape.SLIDING)


class Field(StrEnum):
    """A field of a record that somebody corrects."""

    VALUE = "v"
    KEY = "k"
    TIME = "t"

    def __repr__(self) -> str:
        return f"Field.{self.name}"


class How(StrEnum):
    """How the rows of a table come to be others."""

    UPDATE = "update"
    DELETE_INSERT = "delete_insert"
    OVERWRITE = "overwrite"
    TRUNCATE = "truncate"
    REPLACE = "replace"

    def __repr__(self) -> str:
        return f"How.{self.name}"


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """Something that happens. Records are named by their numbers, which count from 0 in the order of writing."""

    def __repr__(self) -> str:
        """Python that makes the step, without what it has by default."""
        given = [(f, getattr(self, f.name)) for f in fields(self)]
        said = [f"{f.name}={value!r}" for f, value in given if f.default is MISSING or value != f.default]
        return f"{type(self).__name__}({', '.join(said)})"


# What happens to the history.


@dataclass(frozen=True, slots=True, repr=False)
class Arrive(Step):
    """The next `count` records arrive, one a second, in two partitions in turn.

    `only`: in this partition alone. `behind`: seconds that their event times lie back. `ahead`: hours that their
    arrivals lie in front of the clock. `back`: seconds that their arrivals go back. `add`: what their values have more
    than their numbers. `repeats`: each is a duplicate of the record so many numbers before. `unplaced`: without
    partition or offset.
    """

    count: int
    only: int | None = None
    behind: int = 0
    ahead: int = 0
    back: int = 0
    add: int = 0
    repeats: int = 0
    unplaced: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Hold(Step):
    """The next `count` records are given offsets, and do not arrive yet."""

    count: int


@dataclass(frozen=True, slots=True, repr=False)
class Deliver(Step):
    """All records that were held back arrive."""


@dataclass(frozen=True, slots=True, repr=False)
class Correct(Step):
    """A field of the records from `first` to `last` is put right."""

    first: int
    last: int
    field: Field = Field.VALUE
    how: How = How.UPDATE


@dataclass(frozen=True, slots=True, repr=False)
class Remove(Step):
    """The records from `first` to `last` are removed."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, repr=False)
class PutBack(Step):
    """All that was removed is there again, as it was."""


@dataclass(frozen=True, slots=True, repr=False)
class Cut(Step):
    """Retention takes the records below the number `before`; `only`: of this partition alone."""

    before: int
    only: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Reload(Step):
    """All records go and are written again, as they were."""

    how: How = How.TRUNCATE


@dataclass(frozen=True, slots=True, repr=False)
class AnotherLog(Step):
    """In the place of all records come `count` of another log: other arrivals and keys, offsets from 0."""

    count: int
    how: How = How.TRUNCATE


@dataclass(frozen=True, slots=True, repr=False)
class Compact(Step):
    """The same records lie in other files."""


@dataclass(frozen=True, slots=True, repr=False)
class Expire(Step):
    """All snapshots but the last one go."""


@dataclass(frozen=True, slots=True, repr=False)
class RollBack(Step):
    """The table is what it was so many changes before."""

    changes: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class FastForward(Step):
    """The next `count` records are written to a branch, and the table takes it over."""

    count: int


@dataclass(frozen=True, slots=True, repr=False)
class NewColumn(Step):
    """The column of values is renamed (or dropped, with `drops`), and an empty one of its name is added."""

    drops: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class AlterView(Step):
    """The view of the history gives `factor` times the values of its table from now on."""

    factor: int


@dataclass(frozen=True, slots=True, repr=False)
class Move(Step):
    """The key `key` belongs to the region `region` from now on, in the table that records are looked up in."""

    key: str
    region: str


@dataclass(frozen=True, slots=True, repr=False)
class Redefine(Step):
    """The pipeline has one more aggregate from now on."""


# What happens to a topic and the table of its older records.


@dataclass(frozen=True, slots=True, repr=False)
class Archive(Step):
    """All records are in the table from now on, also those that are in the topic."""


@dataclass(frozen=True, slots=True, repr=False)
class Trim(Step):
    """The topic removes what is in the table."""


@dataclass(frozen=True, slots=True, repr=False)
class Wait(Step):
    """Time goes by."""

    hours: int


# What happens to the query of a checkpoint.


@dataclass(frozen=True, slots=True, repr=False)
class Batches(Step):
    """The query runs `count` batches, each of the next `size` records."""

    count: int
    size: int


@dataclass(frozen=True, slots=True, repr=False)
class Restore(Step):
    """The checkpoint is what it was after the batch of this number; the query goes on from there."""

    batch: int


@dataclass(frozen=True, slots=True, repr=False)
class Purge(Step):
    """Spark has removed all but the last `kept` batches of the checkpoint."""

    kept: int


# Runs.


@dataclass(frozen=True, slots=True, repr=False)
class Night(Step):
    """A reconciliation; `until`: what has arrived before the record of this number."""

    until: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Full(Step):
    """A run over the whole range; `as_of`: over the records below this number."""

    as_of: int | None = None
    another_log: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Part(Step):
    """A run over the windows that start from the minute `first` to before the minute `end`."""

    first: int
    end: int


RUNS = (Night, Full, Part)


@dataclass(frozen=True, slots=True)
class Walk:
    """What happens to one pipeline.

    `running_maximum`: where an arrival goes back, the latest one so far counts. `periodic`: watermarks come at ticks.
    """

    kind: Kind
    shape: Shape
    steps: tuple[Step, ...]
    running_maximum: bool = False
    periodic: bool = False

    @property
    def runs(self) -> int:
        """How many of the steps are runs."""
        return sum(isinstance(step, RUNS) for step in self.steps)

    def shown(self) -> str:
        """The walk as Python, a step a line."""
        steps = "".join(f"        {step!r},\n" for step in self.steps)
        more = ", running_maximum=True" if self.running_maximum else ""
        more += ", periodic=True" if self.periodic else ""
        return f"Walk(\n    {self.kind!r}, {self.shape!r},\n    (\n{steps}    ){more},\n)"
