"""What the runs of a walk have read, and what the next one is to do: published, refused, at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.runs.work.job import RunResult
from tests.runs.small_runs import T0
from tests.walk import plan as s
from tests.walk.judge import Case
from tests.walk.log import Log, Place, Reading, Record, goes_back, read
from tests.walk.published import Published
from tests.walk.truth import Cell, assigner_of

_PLAIN = (s.Arrive, s.FastForward, s.Wait, s.Hold, s.Batches, s.Purge, s.Archive, s.Trim)
"""After these, and runs, a night has no more to do than to read what is new."""
_IN_FILES = (s.Kind.FILES, s.Kind.HIVE, s.Kind.VIEW, s.Kind.UNION)
"""Histories that lie in files without snapshots: that another file holds what was read before, nothing proves."""


class Refusal(StrEnum):
    """Why a run is to be refused."""

    ANOTHER_LOG = "what is there is another log"
    GOES_BACK = "an arrival goes back"
    EMPTY = "there is nothing to compute"
    COUNTS_TWICE = "windows that are kept count records that count elsewhere by now"

    @property
    def words(self) -> tuple[str, ...]:
        """One of these is in the error."""
        match self:
            case Refusal.ANOTHER_LOG:
                return ("another", "again", "anew")
            case Refusal.GOES_BACK:
                return ("goes back",)
            case Refusal.EMPTY:
                return ("no usable record", "no event time falls")
            case Refusal.COUNTS_TWICE:
                return ("gone",)


class Runs:
    """What has been read so far. `ever`: the good records by place as they were read last, `bad` the quarantined ones.

    `ends`: up to where the pipeline as a whole has read; None: nothing yet. `life`: of which log.
    """

    def __init__(self, walk: s.Walk) -> None:
        self.walk = walk
        self.ends: dict[int, int] | None = None
        self.life = 0
        self.ever: dict[Place, Record] = {}
        self.bad: dict[int, Record] = {}
        self.made: dict[Cell, Mapping[str, str]] = {}
        """What keys belonged to when the published value of a window was computed."""
        self.redefined = 0
        """How often the definition had changed before the last whole run."""
        self.is_plain = True
        """Whether nothing has happened since the last whole run but what nights go on from."""

    def copy(self) -> Runs:
        """The same, to go on by itself."""
        other = Runs(self.walk)
        other.ends, other.life, other.is_plain = self.ends, self.life, self.is_plain
        other.redefined = self.redefined
        other.ever, other.bad, other.made = dict(self.ever), dict(self.bad), dict(self.made)
        return other

    def saw(self, step: s.Step, log: Log) -> None:
        """Something has happened to the history, or to the definition."""
        is_ahead = isinstance(step, s.Arrive) and (step.ahead or step.back or step.unplaced or step.only is not None)
        is_compacted = isinstance(step, s.Compact) and self.walk.kind not in _IN_FILES
        self.is_plain = self.is_plain and (isinstance(step, _PLAIN) or is_compacted) and not is_ahead

    @staticmethod
    def ends_of(log: Log, as_of: int) -> dict[int, int]:
        """The end offsets below the record `as_of`."""
        return dict(read(log, as_of=as_of).ends)

    def reading(self, step: s.Step, log: Log) -> Reading:
        """What the run reads, and what was read before it."""
        until = step.until if isinstance(step, s.Night) else None
        as_of = step.as_of if isinstance(step, s.Full) else None
        if self.walk.kind is s.Kind.QUERY:
            return read(log, as_of=log.batches[-1] if log.batches else 0)
        known = (self.ends or {}) if isinstance(step, s.Night) and self.life == log.life else {}
        return read(log, until=until, as_of=as_of, at_least=known, running_maximum=self.walk.running_maximum)

    def refusal(self, step: s.Step, log: Log, before: Published) -> Refusal | None:
        """Why the run is to be refused; None: it is not. `before`: what is published."""
        is_meant = isinstance(step, s.Full) and step.another_log
        if self.ends is not None and self.life != log.life and not is_meant:
            return Refusal.ANOTHER_LOG
        if not self.walk.running_maximum and goes_back(log):
            return Refusal.GOES_BACK
        is_night = isinstance(step, s.Night) and self.walk.shape.goes_on and self.redefined == log.redefined
        is_first = self.ends is None or not is_night
        reading = self.reading(step, log)
        if is_first and not reading.records:
            return Refusal.EMPTY
        if isinstance(step, s.Part) and self._is_beyond(_starts(step), reading):
            return Refusal.EMPTY
        return Refusal.COUNTS_TWICE if self.case(step, log, before).counts_twice else None

    def _is_beyond(self, starts: range, reading: Reading) -> bool:
        """Whether no window of what is read, from the first record's to the last one's, can begin in this range."""
        times, assigner = [r.time for r in reading.records], assigner_of(self.walk.shape)
        if not times:
            return True
        first, last = min(times), max(times)
        end = last + 1 if self.walk.shape is s.Shape.SESSION else max(w.end for w in assigner.assign(last))
        return starts.start >= end or starts.stop <= min(w.start for w in assigner.assign(first))

    def case(self, step: s.Step, log: Log, before: Published) -> Case:
        """What the run has to do with."""
        if self.life != log.life:
            self.ever, self.bad, before = {}, {}, Published()
        reading = self.reading(step, log)
        there = {r.number for r in log.records.values()}
        gone_bad = [r for n, r in self.bad.items() if n not in there]
        if self.walk.kind is s.Kind.QUERY:  # what the query had read in a life that was given up is not gone
            self.ever = {}
        ever = {**self.ever, **{r.place: r for r in reading.records if r.place is not None}}
        return Case(
            self.walk.shape,
            log.regions,
            reading.records,
            sorted(ever.values(), key=lambda r: (r.arrival, r.partition or 0, r.offset or 0)),
            (*reading.quarantined, *gone_bad),
            before,
            _starts(step) if isinstance(step, s.Part) else None,
            log.batches,
            self.walk.periodic,
            read_before=frozenset(self.ever),
            made=self.made if self.walk.shape is s.Shape.LOOKUP else {},
        )

    def ran(self, step: s.Step, log: Log, was: Published, now: Published) -> None:
        """The run was published: what was there before it, and after it."""
        for cell, row in now.windows.items():
            if not row.is_kept and row != was.windows.get(cell):
                self.made[cell] = log.regions
        reading = self.reading(step, log)
        starts = _starts(step) if isinstance(step, s.Part) else None
        if self.life != log.life:
            self.ever, self.bad = {}, {}
        self.ever |= {
            r.place: r for r in reading.records if r.place is not None and (starts is None or r.time in starts)
        }
        if starts is None:
            self.bad |= {r.number: r for r in reading.quarantined}
            self.ends, self.life, self.is_plain = dict(reading.ends), log.life, True
            self.redefined = log.redefined

    def wrong_costs(self, step: s.Step, result: RunResult) -> list[str]:
        """A night that has no more to do than to read what is new is no full run."""
        if not isinstance(step, s.Night) or not self.walk.shape.goes_on or self.ends is None or not self.is_plain:
            return []
        if result.continued_from is None and "nothing has arrived" not in result.note:
            return [f"a night after plain arrivals goes on from no run: {result.note}"]
        return []


def _starts(step: s.Part) -> range:
    return range(T0 + step.first * MINUTE, T0 + step.end * MINUTE)
