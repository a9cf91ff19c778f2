"""Walks drawn from a seed. What a walk may do next is said once, for drawing and for shrinking."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.walk import plan as s
from tests.walk.known_runs import Refusal, Runs
from tests.walk.log import Log, goes_back, quarantined
from tests.walk.published import Published

MOST_RECORDS = 300
FEWEST_RECORDS = 15
MOST_AGGREGATES = 3
REFUSED = 10
"""At most one of so many steps is a run that is to be refused."""

_TABLES = (s.Kind.ICEBERG, s.Kind.DELTA)
_ANEW = (s.How.TRUNCATE, s.How.OVERWRITE, s.How.REPLACE)
_Maker = Callable[[random.Random, "World"], s.Step]


@dataclass(frozen=True, slots=True)
class World:
    """What has happened in a walk.

    `read`: the number below which all records have been read, as far as they were there. `has_unplaced`: records
    without a position are there that no whole run has seen. `life`: the log that was read. `is_restored`: the query has
    not gone on since its checkpoint was restored. `rolled_from`: the next number before a roll-back; `waited_at`: when
    time went by. `has_news`: it has, and no run has seen it.
    """

    walk: s.Walk
    runs: Runs
    published: Published = field(default_factory=Published)
    log: Log = field(default_factory=Log)
    read: int = 0
    life: int = 0
    has_run: bool = False
    has_unplaced: bool = False
    steps: int = 0
    refused: int = 0
    rolled_from: int = 0
    waited_at: int = 0
    is_restored: bool = False
    has_news: bool = False

    def after(self, step: s.Step) -> World:
        """The world after a step that it allows."""
        log, steps = self.log.after(step), self.steps + 1
        refused = self.is_refused(step)
        world = self._has_run_by(step) if isinstance(step, s.RUNS) and not refused else self
        unplaced = self.has_unplaced or (isinstance(step, s.Arrive) and step.unplaced)
        world = replace(world, log=log, steps=steps, refused=self.refused + refused, has_unplaced=unplaced)
        if isinstance(step, s.Batches | s.Restore):
            return replace(world, is_restored=isinstance(step, s.Restore), has_news=True)
        if isinstance(step, s.RollBack):
            return replace(world, rolled_from=max(self.rolled_from, self.log.next))
        if isinstance(step, s.AnotherLog):
            return replace(world, rolled_from=0, waited_at=0, has_unplaced=False)
        if isinstance(step, s.Wait):
            return replace(world, waited_at=log.next)
        if isinstance(step, s.Part) and not refused:  # it has read all, and a night that reads less compares only
            return replace(world, read=log.next)
        if refused or not isinstance(step, s.Night | s.Full):
            return world
        end = step.until if isinstance(step, s.Night) else step.as_of
        read = log.next if end is None else end
        return replace(
            world, read=read, life=log.life, has_run=True, has_news=False, has_unplaced=unplaced and end is not None
        )

    def is_refused(self, step: s.Step) -> bool:
        """Whether the run is to be refused."""
        return isinstance(step, s.RUNS) and self.runs.refusal(step, self.log, self.published) is not None

    def _has_run_by(self, step: s.Step) -> World:
        """The world with what the run reads and publishes."""
        runs, case = self.runs.copy(), self.runs.case(step, self.log, self.published)
        published = case.ideal()
        runs.ran(step, self.log, self.published, published)
        return replace(self, runs=runs, published=published)

    def allows(self, step: s.Step) -> bool:
        """Whether the walk knows what comes out of the step, and whether runs are not refused for ever after it."""
        if not self._allows(step):
            return False
        if isinstance(step, s.RUNS) or self.life != (after := self.log.after(step)).life or not self.has_run:
            return True
        refused = self.runs.refusal(s.Full(), after, self.published)
        return refused is not Refusal.COUNTS_TWICE

    def _allows(self, step: s.Step) -> bool:
        log, kind, shape = self.log, self.walk.kind, self.walk.shape
        is_table, end = kind in _TABLES, log.next
        if kind is s.Kind.QUERY:
            return self._allows_of_a_query(step)
        if kind is s.Kind.STITCHED and not self._allows_of_a_stitched(step):
            return False
        if kind is s.Kind.UNION and isinstance(step, s.Move | s.FastForward):
            return False
        if kind is s.Kind.TOPIC and not (isinstance(step, _OF_A_LOG) and not getattr(step, "unplaced", False)):
            return False
        if isinstance(step, s.RUNS) and self.life != log.life and self.has_run:
            return not isinstance(step, s.Part) and (not self.is_refused(step) or self._may_refuse)
        if isinstance(step, s.RUNS) and self.is_refused(step) and not self._may_refuse:
            return False
        match step:
            case s.Arrive(count, back=back, repeats=repeats):
                sound = end + count <= MOST_RECORDS and not (back and not self.walk.running_maximum)
                return sound and not (back and goes_back(log)) and repeats <= end and self._may_differ(step)
            case s.Hold(count) | s.FastForward(count):
                return end + count <= MOST_RECORDS
            case s.Deliver():
                return bool(log.held)
            case s.PutBack():
                return bool(log.removed)
            case s.Correct(first, last, _, how):
                return bool(log.between(first, last)) and (is_table or how is s.How.UPDATE) and not self._has_null
            case s.Remove() | s.Cut():
                return self._leaves(log.after(step)) and self._keeps_quarantine(log.after(step))
            case s.Reload(how) | s.AnotherLog(how=how):
                return self.has_run and (is_table or how is s.How.TRUNCATE)
            case s.RollBack():
                return is_table and bool(log.before) and self._may_go_back_to(log.after(step))
            case s.NewColumn() | s.Expire():
                return is_table
            case s.AlterView():
                return kind is s.Kind.VIEW
            case s.Move():
                return shape is s.Shape.LOOKUP
            case s.Night(until):
                return until is None or (max(self.read, self.waited_at) < until <= end and self._can_end)
            case s.Full(as_of, another_log):
                is_cut = as_of is not None
                return not another_log and (not is_cut or (self.read <= as_of <= end and self._can_end))
            case s.Part():
                return self.has_run and log.life == 0 and shape is not s.Shape.SESSION
            case s.Batches() | s.Restore() | s.Purge():
                return False
            case s.Archive():
                return kind is s.Kind.STITCHED and not log.held and log.archived < end
            case s.Trim():
                return kind is s.Kind.STITCHED and log.archived > 0
            case s.Redefine():
                return self.has_run and log.redefined < MOST_AGGREGATES
            case _:
                return True

    def _allows_of_a_stitched(self, step: s.Step) -> bool:
        """The table has rows of each partition behind a cut, or nobody would know where the topic goes on."""
        log = self.log
        match step:
            case s.Arrive():
                return not (step.unplaced or step.back)
            case s.Correct(_, last):
                return last < log.archived
            case s.Cut(before):
                return before < log.archived and all(
                    any(before <= n < log.archived and r.partition == partition for n, r in log.records.items())
                    for partition in (0, 1)
                )
            case _:
                return isinstance(step, _OF_A_STITCHED)

    def _allows_of_a_query(self, step: s.Step) -> bool:
        batches, end = self.log.batches, self.log.next
        match step:
            case s.Arrive(count):
                return step in (s.Arrive(count), s.Arrive(count, behind=step.behind)) and end + count <= MOST_RECORDS
            case s.Batches(_, size):
                return end >= (batches[-1] if batches else 0) + size
            case s.Restore(batch):
                return 2 <= batch < len(batches) - 1 and self.has_run
            case s.Purge(kept):
                return kept < len(batches) and not self.has_news
            case s.Night(until=None) | s.Full(as_of=None, another_log=False):
                return bool(batches) and not self.is_restored
            case _:
                return False

    @property
    def _may_refuse(self) -> bool:
        return (self.refused + 1) * REFUSED <= self.steps + 1

    @property
    def _can_end(self) -> bool:
        return not self.has_unplaced and not self.walk.running_maximum

    @property
    def _has_null(self) -> bool:
        """A value that is null cannot be put right by what it was."""
        return any(r.value is None for r in self.log.records.values())

    def _may_differ(self, step: s.Arrive) -> bool:
        """After a roll-back, the same numbers come to the same places at the same times, or it were another log."""
        is_other = step.only is not None or step.ahead or step.back or step.unplaced
        return self.log.next >= self.rolled_from or not is_other

    def _may_go_back_to(self, then: Log) -> bool:
        log = self.log
        dropped = [r for r in (*log.records.values(), *log.held, *log.removed) if r.number >= then.next]
        plain = all(r.partition == r.number % 2 and r.arrival == log.time_of(r.number) for r in dropped)
        has_waited = self.waited_at > then.next
        return plain and not has_waited and self._leaves(then) and self._keeps_quarantine(then)

    def _keeps_quarantine(self, log: Log) -> bool:
        """Whether what was wrong beside its successors still has them."""
        return quarantined(self.log) & log.records.keys() <= quarantined(log)

    def _leaves(self, log: Log) -> bool:
        return len(log.records) >= FEWEST_RECORDS and all(
            any(r.partition == partition for r in log.records.values()) for partition in (0, 1)
        )


def is_sound(walk: s.Walk) -> bool:
    """Whether the walk knows what comes out of each of its steps, however many of its runs are refused."""
    world = World(walk, Runs(walk), refused=-len(walk.steps))
    for step in walk.steps:
        if not world.allows(step):
            return False
        world = world.after(step)
    return True


_OF_A_LOG = (s.Arrive, s.Cut, s.AnotherLog, s.Wait, s.Move, s.Redefine, *s.RUNS)
"""What can happen to a topic."""
_OF_A_STITCHED = (s.Archive, s.Trim, s.Wait, s.Move, s.Redefine, *s.RUNS)
"""What else can happen to a topic and the table that it goes on from."""
_OF_A_QUERY = (s.Arrive, s.Batches, s.Restore, s.Purge, s.Night, s.Full)
"""What can happen to a query."""


def fits(kind: s.Kind, shape: s.Shape) -> bool:
    """Whether there are walks of a kind and shape: a union's inputs have lookups of their own, a query has none."""
    if kind is s.Kind.QUERY:
        return shape is s.Shape.TUMBLING
    return not (kind is s.Kind.UNION and shape is s.Shape.LOOKUP)


def drawn(seed: int, kind: s.Kind, shape: s.Shape, steps: int) -> s.Walk:
    """A walk of so many steps; the same for the same arguments."""
    draw = random.Random(f"{seed} {kind} {shape}")
    walk = s.Walk(kind, shape, (), running_maximum=_counts_latest(draw, kind, shape), periodic=_is_periodic(draw, kind))
    worlds, taken = [World(walk, Runs(walk))], list[s.Step]()
    for step in _steps(draw, worlds):
        taken.append(step)
        worlds.append(worlds[-1].after(step))
        if len(taken) >= steps and isinstance(step, s.RUNS):
            return replace(walk, steps=tuple(taken))
    raise AssertionError("steps never end")


def _is_periodic(draw: random.Random, kind: s.Kind) -> bool:
    return draw.random() < 0.25 and kind is not s.Kind.QUERY


def _counts_latest(draw: random.Random, kind: s.Kind, shape: s.Shape) -> bool:
    return draw.random() < 0.2 and shape is s.Shape.TUMBLING and kind is not s.Kind.STITCHED


def _steps(draw: random.Random, worlds: list[World]) -> Iterator[s.Step]:
    yield s.Arrive(draw.randrange(40, 80))
    if worlds[-1].walk.kind is s.Kind.QUERY:
        yield s.Batches(draw.randrange(3, 6), draw.randrange(3, 12))
    cut = s.Night(until=draw.randrange(30, worlds[-1].log.next))
    yield cut if draw.random() < 0.5 and worlds[-1].allows(cut) else s.Night()
    while True:
        for _ in range(draw.choice((1, 1, 2, 3))):
            yield _allowed(draw, worlds[-1], CHANGES)
            if worlds[-1].life != worlds[-1].log.life:
                yield from _of_another_log(draw, worlds[-1])
        if worlds[-1].is_restored:
            batches = worlds[-1].log.batches
            yield s.Batches(draw.randrange(1, 5), draw.randrange(1, 2 + min(10, worlds[-1].log.next - batches[-1] - 1)))
        yield _allowed(draw, worlds[-1], RUNS)


def _of_another_log(draw: random.Random, world: World) -> Iterator[s.Step]:
    """A run is refused until somebody says that the other log is meant."""
    if world.allows(s.Night()):
        yield s.Night()
    yield s.Full(another_log=True)


def _allowed(draw: random.Random, world: World, makers: tuple[tuple[int, _Maker], ...]) -> s.Step:
    weights = [weight for weight, _ in makers]
    for _ in range(1000):
        (_, maker), *_ = draw.choices(makers, weights)
        step = maker(draw, world)
        if world.allows(step):
            return step
    raise AssertionError(f"nothing is allowed after {world.steps} steps of a walk over {world.walk.kind}")


def _end(draw: random.Random, world: World) -> int:
    return draw.randrange(min(world.read, world.log.next), world.log.next + 1)


def _range(draw: random.Random, world: World, most: int) -> tuple[int, int]:
    first = draw.randrange(max(1, world.log.next))
    return first, first + draw.randrange(most)


def _arrive(draw: random.Random, world: World) -> s.Step:
    count = draw.randrange(3, 25)
    ways = [s.Arrive(count), s.Arrive(count), s.Arrive(count, behind=draw.choice((15, 70, 200)))]
    ways += [s.Arrive(count, only=draw.randrange(2)), s.Arrive(min(count, 8), repeats=draw.randrange(1, 60))]
    ways += [s.Arrive(1, ahead=36), s.Arrive(2, unplaced=True), s.Arrive(min(count, 5), back=draw.choice((5, 20)))]
    return draw.choice(ways)


def _correct(draw: random.Random, world: World) -> s.Step:
    first, last = _range(draw, world, draw.choice((1, 3, 40)))
    how = draw.choice((s.How.UPDATE, s.How.DELETE_INSERT, s.How.OVERWRITE))
    return s.Correct(
        first,
        last,
        draw.choice([*s.Field]),
        how if last - first < 3 or how is not s.How.UPDATE else s.How.DELETE_INSERT,
    )


CHANGES: tuple[tuple[int, _Maker], ...] = (
    (12, _arrive),
    (4, _correct),
    (2, lambda draw, world: s.Hold(draw.randrange(1, 10))),
    (4, lambda draw, world: s.Deliver()),
    (3, lambda draw, world: s.Cut(draw.randrange(1, max(2, world.log.next * 3 // 4)), draw.choice((None, None, 0, 1)))),
    (1, lambda draw, world: s.Remove(*_range(draw, world, 12))),
    (2, lambda draw, world: s.PutBack()),
    (2, lambda draw, world: s.Compact()),
    (1, lambda draw, world: s.Reload(draw.choice(_ANEW))),
    (1, lambda draw, world: s.AnotherLog(draw.randrange(20, 60), draw.choice(_ANEW))),
    (3, lambda draw, world: s.AlterView(draw.randrange(1, 4))),
    (1, lambda draw, world: s.Expire()),
    (3, lambda draw, world: s.RollBack(draw.randrange(1, 3))),
    (1, lambda draw, world: s.FastForward(draw.randrange(3, 20))),
    (1, lambda draw, world: s.NewColumn(draw.random() < 0.5)),
    (5, lambda draw, world: s.Move(draw.choice("abc"), draw.choice(("north", "south", "east")))),
    (1, lambda draw, world: s.Wait(48)),
    (1, lambda draw, world: s.Redefine()),
    (6, lambda draw, world: s.Archive()),
    (4, lambda draw, world: s.Trim()),
    (9, lambda draw, world: s.Batches(draw.randrange(1, 6), draw.randrange(3, 12))),
    (3, lambda draw, world: s.Restore(draw.randrange(2, 1 + max(2, len(world.log.batches))))),
    (3, lambda draw, world: s.Purge(draw.randrange(1, 5))),
)  # fmt: skip
RUNS: tuple[tuple[int, _Maker], ...] = (
    (6, lambda draw, world: s.Night()),
    (6, lambda draw, world: s.Night(until=_end(draw, world))),
    (2, lambda draw, world: s.Full()),
    (2, lambda draw, world: s.Full(as_of=_end(draw, world))),
    (2, lambda draw, world: s.Part(draw.randrange(3), draw.randrange(3, 6))),
)
