"""A small model of what every table must hold, for `test_run_lives`: windows, revisions, late records, runs."""

from __future__ import annotations

from dataclasses import dataclass, field

Cell = tuple[str, int]
"""A key and the number of a window."""
Value = tuple[int, int, int]
"""Records on time, records dropped, total."""


@dataclass(frozen=True)
class Event:
    """A record; its offset is its place in the log. A late one is dropped by its window."""

    cell: Cell
    is_late: bool


@dataclass(eq=False)
class ModelRun:
    """A run: what it stages, and what the model knows of it.

    `since`: the offset that a night goes on from; None: the run replaces its range. `base`: how many commits there
    were when it began, `began`: how many published runs. `attempts`: those that have begun.
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

    def __repr__(self) -> str:
        kind = "run" if self.since is None else f"night since {self.since}"
        return f"{self.run_id} ({kind} {self.low}-{self.high} as of {self.as_of}, version {self.version})"

    @property
    def replaces(self) -> bool:
        return self.since is None

    def covers(self, cell: Cell) -> bool:
        return self.low <= cell[1] < self.high

    def overlaps(self, other: ModelRun) -> bool:
        return self.low < other.high and other.low < self.high


@dataclass
class Model:
    """What is published. `revisions`: by window, each value with its run; None: a retraction."""

    windows: int
    log: list[Event] = field(default_factory=list)
    version: int = 0
    revisions: dict[Cell, list[tuple[Value | None, str]]] = field(default_factory=dict)
    late: list[tuple[int, Cell]] = field(default_factory=list)
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
        for run in reversed(self.published):
            if run.version != self.version:
                return None
            if (run.low, run.high) == (0, self.windows):
                return run.as_of
        return None

    def current(self) -> dict[Cell, tuple[Value, str, int]]:
        """The current windows: value, run and number of the revision."""
        last = {cell: (*life[-1], len(life)) for cell, life in self.revisions.items()}
        return {cell: (value, run, n) for cell, (value, run, n) in last.items() if value is not None}

    def effect_of(self, run: ModelRun) -> tuple[dict[Cell, Value | None], list[tuple[int, Cell]]]:
        """The new revisions, and the late records afterwards, if the run were published now."""
        now = self.current()
        changes: dict[Cell, Value | None] = {
            cell: value for cell, value in run.windows.items() if cell not in now or now[cell][0] != value
        }
        changes |= {cell: None for cell in now if run.covers(cell) and cell not in run.windows}
        if run.since is None:
            kept = [row for row in self.late if not run.covers(row[1])]
        else:
            kept = [row for row in self.late if not run.since <= row[0] < run.as_of]
        return changes, sorted([*kept, *run.late.items()])

    def has_effect(self, run: ModelRun) -> bool:
        changes, late = self.effect_of(run)
        return bool(changes) or late != sorted(self.late)

    def rivals_of(self, run: ModelRun) -> list[str]:
        """Runs that have committed windows of the range since the run began."""
        return [r.run_id for r in self.commits[run.base :] if r is not run and r.overlaps(run)]

    def publish(self, run: ModelRun) -> None:
        """The commit of the run."""
        changes, self.late = self.effect_of(run)
        for cell, value in changes.items():
            self.revisions.setdefault(cell, []).append((value, run.run_id))
        self.commits.append(run)
