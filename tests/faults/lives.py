"""A small model of what every table must hold, for `test_run_lives`: windows, revisions, late records, runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

Cell = tuple[str, int]
"""A key and the number of a window."""
Value = tuple[int | None, int | None, int | None]
"""Records on time, records dropped, total; null where somebody else wrote or dropped it."""
Row = tuple[Value, str | None, int | None]
"""What readers see of a window: value, run and number of the revision."""


@dataclass(frozen=True)
class Event:
    """A record; its offset is its place in the log. A late one is dropped by its window."""

    cell: Cell
    is_late: bool


@dataclass(eq=False)
class ModelRun:
    """A run: what it stages, and what the model knows of it.

    `since`: the offset that a night goes on from; None: the run replaces its range. `base`: how many commits there
    were when it began, `began`: how many published runs. `repairs`: it compares with what readers see, because somebody
    else had changed the tables; `has_seen`: how many such changes there were when it began. `clock`: how
    far the clock of its host is ahead.
    """

    run_id: str
    version: int
    low: int
    high: int
    as_of: int
    since: int | None
    windows: dict[Cell, Value]
    late: dict[int, Cell]
    base: int = 0
    began: int = 0
    attempt: str = ""
    was_verified: bool = False
    gate_blocks: bool = False
    needs_approval: bool = False
    repairs: bool = False
    has_seen: int = 0
    clock: timedelta = timedelta(0)

    def __repr__(self) -> str:
        kind = "run" if self.since is None else f"night since {self.since}"
        return f"{self.run_id} ({kind} {self.low}-{self.high} as of {self.as_of}, version {self.version})"

    @property
    def replaces(self) -> bool:
        return self.since is None

    def is_whole(self, windows: int) -> bool:
        return (self.low, self.high) == (0, windows)

    def covers(self, cell: Cell) -> bool:
        return self.low <= cell[1] < self.high

    def overlaps(self, other: ModelRun) -> bool:
        return self.low < other.high and other.low < self.high


@dataclass
class Model:
    """What is published.

    `revisions`: by window, each value with its run; None: a retraction. `main`: what readers see of each window, which
    is the last revision unless somebody else has changed it. `strange`: how many changes by somebody else there were;
    `is_strange`: no run has corrected the last of them.
    """

    windows: int
    log: list[Event] = field(default_factory=list)
    version: int = 0
    revisions: dict[Cell, list[tuple[Value | None, str]]] = field(default_factory=dict)
    main: dict[Cell, list[Row]] = field(default_factory=dict)
    late: list[tuple[int, Cell]] = field(default_factory=list)
    strange: int = 0
    is_strange: bool = False
    commits: list[ModelRun] = field(default_factory=list)
    published: list[ModelRun] = field(default_factory=list)

    def run(self, run_id: str, low: int, high: int, *, night: bool) -> ModelRun:
        """What a run of now stages. A night is a run over everything where it cannot go on from one before."""
        since = self._goes_on_from() if night else None
        if night:
            low, high = 0, self.windows
        cells = {e.cell for e in self.log if low <= e.cell[1] < high}
        values = {}
        for cell in sorted(cells):
            mine = [e for e in self.log if e.cell == cell]
            dropped = sum(e.is_late for e in mine)
            values[cell] = (len(mine) - dropped, dropped, len(mine) + 1000 * self.version)
        late = {
            n: e.cell for n, e in enumerate(self.log) if e.is_late and low <= e.cell[1] < high and n >= (since or 0)
        }
        return ModelRun(run_id, self.version, low, high, len(self.log), since, values, late)

    def _goes_on_from(self) -> int | None:
        for run in [] if self.is_strange else reversed(self.published):
            if run.version != self.version:
                return None
            if run.is_whole(self.windows):
                return run.as_of
        return None

    def current(self) -> list[tuple[Cell, Row]]:
        """What readers see, in order."""
        return sorted(((cell, row) for cell, rows in self.main.items() for row in rows), key=repr)

    def effect_of(self, run: ModelRun) -> tuple[dict[Cell, Value | None], list[tuple[int, Cell]]]:
        """The new revisions, and the late records afterwards, if the run were published now."""
        known = {cell: life[-1][0] for cell, life in self.revisions.items()}
        changes: dict[Cell, Value | None] = {}
        for cell in {*known, *self.main, *run.windows}:
            value, seen = run.windows.get(cell), [row[0] for row in self.main.get(cell, [])]
            if not self._is_in_scope(run, cell):
                continue
            is_same = seen == ([] if value is None else [value])
            if not is_same or (run.repairs and known.get(cell) != value):
                changes[cell] = value
        if self._is_everything(run):
            kept = []
        elif run.since is None:
            kept = [row for row in self.late if not run.covers(row[1])]
        else:
            kept = [row for row in self.late if not run.since <= row[0] < run.as_of]
        return changes, sorted([*kept, *run.late.items()])

    def _is_everything(self, run: ModelRun) -> bool:
        return run.since is None and run.is_whole(self.windows)

    def _is_in_scope(self, run: ModelRun, cell: Cell) -> bool:
        return self._is_everything(run) or run.covers(cell)

    def has_effect(self, run: ModelRun) -> bool:
        changes, late = self.effect_of(run)
        return bool(changes) or late != sorted(self.late)

    def rivals_of(self, run: ModelRun) -> list[str]:
        """Runs that have committed windows of the range since the run began."""
        everything = self._is_everything(run)
        return [r.run_id for r in self.commits[run.base :] if r is not run and (everything or r.overlaps(run))]

    def publish(self, run: ModelRun) -> None:
        """The commit of the run."""
        changes, self.late = self.effect_of(run)
        for cell, value in changes.items():
            life = self.revisions.setdefault(cell, [])
            life.append((value, run.run_id))
            self.main[cell] = [] if value is None else [(value, run.run_id, len(life))]
        self.commits.append(run)
        self.is_strange &= not run.repairs

    # What somebody else does, who knows nothing of Rewindow.

    def changed_by_a_stranger(self) -> None:
        self.strange, self.is_strange = self.strange + 1, True

    def go_back(self, main: dict[Cell, list[Row]], commits: int) -> None:
        """The table is rolled back to what readers saw after so many commits."""
        self.main = {cell: list(rows) for cell, rows in main.items()}
        self.commits = self.commits[:commits]
        self.changed_by_a_stranger()

    def lose_everything(self) -> None:
        """The table of windows is dropped, and with it what it says of the late records."""
        self.main, self.revisions, self.late, self.commits = {}, {}, [], []
        self.changed_by_a_stranger()

    def lose_totals(self) -> None:
        """The column `total` is dropped or renamed: it is null in all rows of before."""
        for cell, rows in self.main.items():
            self.main[cell] = [((n, dropped, None), run, revision) for (n, dropped, _), run, revision in rows]
        for cell, life in self.revisions.items():
            self.revisions[cell] = [(value and (value[0], value[1], None), run) for value, run in life]
        self.changed_by_a_stranger()
