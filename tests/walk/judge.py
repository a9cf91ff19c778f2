"""Whether what is published is right: what a fresh full run would give, or what is kept of records that are gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tests.walk.log import Place, Record
from tests.walk.plan import Shape
from tests.walk.published import Published, Row
from tests.walk.truth import Cell, Counted, Truth, assigner_of, key_of, lateness_of, truth_of, truth_of_query

_NOTHING = Counted()


@dataclass(frozen=True)
class Case:
    """What a run has read, and what runs before it had read.

    `present` are the good records that are there, in order. `ever` are those and the ones that are gone since they were
    read, as they were then. `bad` belong into quarantine, also those that are gone. `before`: what was published.
    `starts`: the run computes the windows that start in this range (epoch ms) alone; None: all of them. `batches`:
    those of a query that has read the records. `periodic`: watermarks come at ticks. `read_before`: the places
    that runs before this one have read. `made`: what keys belonged to when the value of a window was computed.
    """

    shape: Shape
    regions: Mapping[str, str]
    present: Sequence[Record]
    ever: Sequence[Record]
    bad: Sequence[Record]
    before: Published
    starts: range | None = None
    batches: tuple[int, ...] = ()
    periodic: bool = False
    read_before: Collection[Place] = ()
    made: Mapping[Cell, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def gone(self) -> list[Record]:
        there = {r.place for r in self.present}
        return [r for r in self.ever if r.place not in there]

    @cached_property
    def now(self) -> Truth:
        """What a fresh full run gives."""
        if self.batches:
            return truth_of_query(self.present, self.batches)
        return truth_of(self.present, self.shape, self.regions, periodic=self.periodic)

    @cached_property
    def whole(self) -> Truth:
        """What a full run would give if nothing were gone."""
        return truth_of(self.ever, self.shape, self.regions, periodic=self.periodic) if self.gone else self.now

    def faults(self, after: Published) -> list[str]:
        """What is wrong with what is published after the run."""
        if self._merges or self.batches:  # what is counted of a session, or of batches, is nobody's business here
            return replace(self, before=self.before.without_counts()).differences(after.without_counts())
        return self.differences(after)

    def differences(self, after: Published) -> list[str]:
        """What is wrong, with what was counted of each window."""
        found = [f"{cell} is there twice" for cell in after.twice]
        found += [fault for cell in self._cells(after) for fault in self._of_cell(cell, after.windows.get(cell))]
        if self.starts is None:
            found += [*self._of_totals(after), *self._of_late(after), *self._of_quarantine(after)]
        return found

    def ideal(self) -> Published:
        """What a run without faults publishes: it keeps the windows of which records are gone."""
        rows = {cell: self._ideal_row(cell, self.before.windows.get(cell)) for cell in self._cells(self.before)}
        there = {cell: row for cell, row in rows.items() if row is not None}
        return Published(there, dict(self.whole.late), Counter(r.place for r in self.bad))

    def _ideal_row(self, cell: Cell, was: Row | None) -> Row | None:
        if self.starts is not None and cell[1] not in self.starts:
            return was
        if was is not None and self.gone and self._has_gone(cell, any_key=False):
            more = sum(r.place not in self.read_before for r in self._records_then(cell))
            counted = replace(was.counted, not_counted=was.counted.not_counted + more)
            return replace(was, is_kept=True, counted=counted)
        if self.gone and self._is_final(cell) and cell not in self._new_cells:
            return was
        if cell in self._held_elsewhere:
            return None
        return self._rights(cell)[-1]

    @cached_property
    def _new_cells(self) -> set[Cell]:
        """Windows that had no record when a run before read the history: they are decided now."""
        return {cell for cell in self.whole.complete if cell[1:] not in {c[1:] for c in self.before.windows}}

    @cached_property
    def counts_twice(self) -> bool:
        """Whether windows lack more records than are gone there: some count elsewhere, so that the run is refused."""
        if not self.gone or self._merges or self.batches or self.shape is Shape.DEDUPLICATE:
            return False
        lacks, gone = Counter[Cell](), Counter[Cell]()
        for cell, row in self.before.windows.items():
            if (self.starts is None or cell[1] in self.starts) and not self._is_final(cell):
                there = sum(r.place in self.read_before for r in self._records_then(cell))
                lacks[None, cell[1], cell[2]] += max(0, row.counted.all - there)
        for _, windows in self._windows_of_gone:
            gone.update((None, w.start, w.end) for w in windows)
        if any(gone[span] and count > gone[span] for span, count in lacks.items()):
            return True
        return any(not places <= self._held[cell[1:]] for cell, places in self._moved.items())

    @cached_property
    def _records_of(self) -> Mapping[Cell, list[Record]]:
        """The records that are there, by window."""
        return self._by_window(self.regions)

    def _by_window(self, regions: Mapping[str, str]) -> Mapping[Cell, list[Record]]:
        found, assigner = defaultdict[Cell, list[Record]](list), assigner_of(self.shape)
        for r in self.present:
            for w in assigner.assign(r.time):
                found[key_of(r, self.shape, regions), w.start, w.end].append(r)
        return found

    def _records_then(self, cell: Cell) -> Sequence[Record]:
        """The records that are there, of those that lay in the window when its value was computed."""
        return self._then[frozenset(self._made(cell).items())].get(cell, ())

    @cached_property
    def _then(self) -> Mapping[frozenset[tuple[str, str]], Mapping[Cell, list[Record]]]:
        kinds = {frozenset(one.items()) for one in (*self.made.values(), self.regions)}
        return {kind: self._by_window(dict(kind)) for kind in kinds}

    def _made(self, cell: Cell) -> Mapping[str, str]:
        return self.made.get(cell, self.regions)

    @cached_property
    def _held(self) -> Mapping[tuple[int, int], set[Place | None]]:
        """The records that are there and lay in windows that lack some now, by the windows' bounds."""
        found = defaultdict[tuple[int, int], set[Place | None]](set)
        for cell, row in self.before.windows.items():
            there = self._records_then(cell)
            lacks = sum(r.place in self.read_before for r in there) < row.counted.all
            if self._made(cell) != self.regions and lacks and self._has_gone(cell, any_key=True):
                found[cell[1:]] |= {r.place for r in there}
        return found

    @cached_property
    def _moved(self) -> Mapping[Cell, set[Place | None]]:
        """The windows that have such records by now, and do not keep a value themselves, with all their records."""
        found = {cell: {r.place for r in records} for cell, records in self._records_of.items()}
        stays = {c for c in self.before.windows if self._has_gone(c, any_key=False) or self._is_final(c)}
        return {c: places for c, places in found.items() if c not in stays and places & self._held[c[1:]]}

    @cached_property
    def _held_elsewhere(self) -> set[Cell]:
        """Windows all of whose records count in windows that keep their values: they give way."""
        if not self.gone or self.shape is not Shape.LOOKUP:
            return set()
        return {cell for cell, places in self._moved.items() if places <= self._held[cell[1:]]}

    # Windows.

    def _cells(self, after: Published) -> list[Cell]:
        cells = {*after.windows, *self.before.windows, *self.now.faithful, *self.now.complete}
        return sorted(cells, key=lambda cell: (cell[1], cell[2], cell[0] or ""))

    def _of_cell(self, cell: Cell, row: Row | None) -> Iterator[str]:
        was = self.before.windows.get(cell)
        if self.starts is not None and cell[1] not in self.starts:
            if row != was:
                yield f"{cell} lies outside of the run's range: {was} became {row}"
            return
        if self.gone and self._is_final(cell) and row == was:
            return
        if row is not None and row.is_kept:
            yield from self._of_kept(cell, row, was)
        elif cell in self._held_elsewhere:
            if row is not None:
                yield f"{cell} counts records that count in windows that keep their values: {row}"
        elif self._is_as_it_was(cell, row, was):
            return
        elif self._has_gone(cell, any_key=False) and was is not None:
            yield f"{cell} held records that are gone: {was} became {row}"
        elif row not in (rights := self._rights(cell)):
            yield f"{cell} is {row}, right is {' or '.join(map(repr, rights))}; it was {was}"

    def _of_kept(self, cell: Cell, row: Row, was: Row | None) -> Iterator[str]:
        if not self._has_gone(cell, any_key=True):
            yield f"{cell} is kept, and no record is gone that it can have held: {row}, right is {self._rights(cell)}"
        elif was is None or (row.faithful, row.complete) != (was.faithful, was.complete):
            yield f"{cell} is kept with another value than it had: {was} became {row}"

    def _is_as_it_was(self, cell: Cell, row: Row | None, was: Row | None) -> bool:
        """Whether nothing has changed, in a window that holds records that are gone, or lies beside such.

        What a run before has decided stays, whichever records decided it, as long as the window's own are there.
        """
        if not self.gone or row is None or row != was:
            return False
        return self._has_gone(cell, any_key=False) or row.complete == self.now.complete.get(cell)

    def _has_gone(self, cell: Cell, *, any_key: bool) -> bool:
        """Whether a record that is gone lies in the window (in a session: at it), with its key or with any."""
        return any(
            (any_key or key_of(r, self.shape, self._made(cell)) == cell[0])
            and any(
                w.start <= cell[2] and cell[1] <= w.end if self._merges else (w.start, w.end) == cell[1:] for w in ws
            )
            for r, ws in self._windows_of_gone
        )

    @cached_property
    def _windows_of_gone(self) -> list[tuple[Record, list]]:
        assigner = assigner_of(self.shape)
        return [(r, list(assigner.assign(r.time))) for r in self.gone]

    @property
    def _merges(self) -> bool:
        return self.shape is Shape.SESSION

    def _rights(self, cell: Cell) -> list[Row | None]:
        """The right rows of a window of which nothing was published that is gone. None: no row.

        Where records that are gone would belong to it by now, nothing is known of them: what is there counts (a session
        can be covered by one that is kept). Else it holds no such record.

        Decisions on what comes after the cut may stand on what is there, or on all that was ever read. What was final
        before the cut stays; so does what was decided about duplicates whose first copy is gone.
        """
        now, whole = self._row(cell, self.now), self._row(cell, self.whole)
        if self._has_gone(cell, any_key=False):
            return [now, *([None] if self._merges else [])]
        if not self.gone or self._is_final(cell):
            return [whole if self.gone else now]
        if self.shape is Shape.DEDUPLICATE and self.before.windows.get(cell) == whole:
            return [whole]
        return [now, *([whole] if whole != now else [])]

    def _row(self, cell: Cell, truth: Truth) -> Row | None:
        faithful, complete = truth.faithful.get(cell), truth.complete.get(cell)
        if faithful is None and complete is None:
            return None
        counted = truth.counted.get(cell, _NOTHING)
        if self.shape is Shape.COMPLETE:
            faithful, counted = None, Counted(sum((counted.on_time, counted.late, counted.dropped)))
        if self._merges or self.batches:
            counted = Counted()
        return Row(faithful, complete, counted, False)

    def _is_final(self, cell: Cell) -> bool:
        """Whether the window was final before the first record that is still there."""
        return self.whole.closed(cell[2], lateness_of(self.shape)) < self._first

    @cached_property
    def _first(self) -> tuple[int, int, int]:
        return min(((r.arrival, r.partition or 0, r.offset or 0) for r in self.present), default=(0, 0, 0))

    # What holds of all windows together, late records and quarantine.

    def _of_totals(self, after: Published) -> Iterator[str]:
        """No record counts for two keys: windows of one span hold no more records than there ever were in it."""
        if self._merges or self.batches or self.shape is Shape.DEDUPLICATE:
            return
        held = defaultdict[tuple[int, int], int](int)
        for cell, row in after.windows.items():
            held[cell[1:]] += 0 if row.complete is None else row.complete[0]
        for span, count in sorted(held.items()):
            most = self.whole.pairs.get(span, 0)
            if count > most:
                yield f"the windows of {span} count {count} records, and no more than {most} were ever there"

    def _of_late(self, after: Published) -> Iterator[str]:
        if self.shape is Shape.COMPLETE:
            return
        gone = {r.place for r in self.gone}
        for place in sorted({*after.late, *self.before.late, *self.now.late, *self.whole.late}):
            found, now, whole = after.late.get(place), self.now.late.get(place), self.whole.late.get(place)
            rights: Collection[int | None] = {now, whole} if self.gone else {now}
            if self.gone and place in self.before.late:
                rights = {*rights, self.before.late[place]}
            if place in gone:
                rights = {self.before.late.get(place), whole} if place in self.before.late else {whole, None}
            if found not in rights:
                yield f"record {place} is late for {found} windows, right is {rights}"

    def _of_quarantine(self, after: Published) -> Iterator[str]:
        right = Counter[Place | None](r.place for r in self.bad)
        if after.quarantined != right:
            yield f"in quarantine are {dict(after.quarantined)}, right is {dict(right)}"
