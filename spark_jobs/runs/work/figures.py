"""The figures of a run that people read: each defined once and worded once, for page, JSON, lists, logs and commands.

A figure is None where the run did not get that far. No Spark in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.formatting import plural
from spark_jobs.lakehouse.change import RESTATED, VISIBLE, WindowChange
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.runs.life.documents import Changes, EarlierRun, Outcome

_OPEN_BEFORE = (WindowChange.WAS_OPEN, WindowChange.OUTGROWN)
_OF_BEFORE = (*RESTATED, *_OPEN_BEFORE)
"""Changes of windows that were published before."""
_PAIRS = ("pairs_on_time", "pairs_late", "pairs_dropped")


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run computed, and what publishing it changes or would change.

    Attributes:
        by_change: Windows of each `WindowChange`.
        windows_recomputed: Published windows that the run computed again: those whose numbers stay, those that get
            others, and those that it retracts. Nobody has looked at other published windows. Where each pane is a row
            of its own, they count panes, as `by_change` does.
        restated_share: Windows of which a number that readers had changes, as a share of those that readers had on the
            same days.
        counts: What the run counted, by the names of `RunCounts`. The pairs are those of the windows that it computed:
            a record of overlapping windows is in several. A night reads only what is new, so its windows can have
            dropped more than its late records.
    """

    by_change: Mapping[str, int] | None
    windows_recomputed: int | None
    counts: Mapping[str, int | None]
    restated_share: float | None = None

    @classmethod
    def of(cls, changes: Changes | EarlierRun | None, outcome: Outcome | None = None) -> RunFigures:
        """The figures from `changes.json`, or, where there is none, from the counts in `outcome.json`.

        What neither has is None.
        """
        counted = outcome.counts if outcome else RunCounts()
        if changes is None:
            return cls(None, None, counted.known())
        by_change = {kind.value: changes.counts.get(kind, 0) for kind in WindowChange}
        numbers = counted.known() | {name: n for name, n in changes.known().items() if n is not None}
        restated = changes.restated
        share = None if restated is None else (restated.share if restated.windows else 0.0)
        return cls(by_change, changes.windows_recomputed, numbers, share)

    @property
    def windows(self) -> int | None:
        return self.counts["windows"]

    @property
    def changed(self) -> int | None:
        """Windows that readers see change, come or go."""
        return None if self.by_change is None else sum(self.by_change[kind] for kind in VISIBLE)

    @property
    def bookkeeping(self) -> int:
        """Windows of which only `closed_at` differs."""
        return 0 if self.by_change is None else self.by_change[WindowChange.BOOKKEEPING]

    @property
    def unchanged(self) -> int | None:
        """Published windows that the run computed again and whose numbers stay."""
        if self.by_change is None or self.windows_recomputed is None:
            return None
        return max(self.windows_recomputed - sum(self.by_change[kind] for kind in _OF_BEFORE), 0)

    @property
    def restated(self) -> int | None:
        """Windows of which a number that readers had is another one, or is gone."""
        return None if self.by_change is None else sum(self.by_change[kind] for kind in RESTATED)

    @property
    def match_share(self) -> float | None:
        """`unchanged`, as a share (0 to 1) of the windows that readers had and the run computed again; None: none."""
        unchanged, again = self.unchanged, (self.unchanged or 0) + (self.restated or 0)
        return None if unchanged is None or not self.windows_recomputed or not again else unchanged / again

    @property
    def computed_in_words(self) -> str:
        """What the run computed, in parts that add up; empty where that is not known."""
        if self.by_change is None or self.unchanged is None:
            return ""
        new, other = self.by_change[WindowChange.INSERTED], self.by_change[WindowChange.UPDATED]
        was_open = self.by_change[WindowChange.WAS_OPEN]
        rows = new + other + was_open + self.unchanged
        what = plural(rows, "window" if self.windows in (None, rows) else "pane")
        opened = f"{was_open:,} that {'was' if was_open == 1 else 'were'} open before, " if was_open else ""
        return f"{what}: {new:,} new, {opened}{other:,} with other numbers, {self.unchanged:,} with the same numbers"

    @property
    def pairs(self) -> int | None:
        """All (record, window) pairs of the windows that the run computed."""
        known = [self.counts[name] for name in _PAIRS]
        return None if None in known else sum(filter(None, known))

    @property
    def is_judged(self) -> bool | None:
        """Whether the run said what was late: one that computes complete values only does not."""
        return None if self.pairs is None else self.pairs > 0 or not self.windows

    @property
    def late_share(self) -> float | None:
        """The share (0 to 1) of pairs in which the record came after the window's close, counted or dropped."""
        return None if not self.pairs else self._of("pairs_late", "pairs_dropped") / self.pairs

    @property
    def dropped_share(self) -> float | None:
        """The share (0 to 1) of pairs in which the window dropped the record."""
        return None if not self.pairs else self._of("pairs_dropped") / self.pairs

    def _of(self, *names: str) -> int:
        return sum(self.counts[name] or 0 for name in names)

    def in_words(self) -> dict[str, str]:
        """The lines for what was computed, on time, late and late records, by their names; without unknown ones."""
        found = {"Computed": self.computed_in_words} if self.computed_in_words else {}
        if duplicates := self.counts["records_duplicate"]:
            found["Duplicates"] = f"{duplicates:,} of the records that the run read: in no window, and not late"
        if self.is_judged is False:
            return found | {"Late": "not counted: the run computed complete values only, which include every record"}
        if self.pairs is not None:
            on_time, late, dropped = (plural(self._of(name), "(record, window) pair") for name in _PAIRS)
            found["On time"] = f"{on_time} of the windows that the run computed"
            found["Late, counted"] = f"{late}, within the allowed lateness"
            found["Late, dropped"] = dropped
        if (late_records := self.counts["records_late"]) is not None:
            found["Late records"] = f"{late_records:,} of the new records: too late for a window, which dropped them"
        return found


def recomputed_windows(computed: int, by_change: Mapping[str, int]) -> int:
    """The published windows among those that a run computed, and those that it retracts. `computed`: rows staged."""
    gone = sum(by_change.get(kind, 0) for kind in (WindowChange.RETRACTED, WindowChange.OUTGROWN))
    return max(
        computed - by_change.get(WindowChange.INSERTED, 0) + gone, sum(by_change.get(kind, 0) for kind in _OF_BEFORE)
    )


def changes_in_words(by_change: Mapping[str, int]) -> str:
    """2 windows inserted, 5 updated, 3 that were open before. What readers do not see is left out."""
    parts = [(by_change.get(kind, 0), kind.value) for kind in VISIBLE if kind not in _OPEN_BEFORE]
    parts.append((sum(by_change.get(kind, 0) for kind in _OPEN_BEFORE), "that had been open before"))
    parts = [(n, kind) for n, kind in parts if n]
    if not parts:
        return "no window"
    first, *others = parts
    return ", ".join([f"{plural(first[0], 'window')} {first[1]}", *(f"{n:,} {kind}" for n, kind in others)])


def bookkeeping_in_words(count: int, *, would: bool = False) -> str:
    """What publishing writes anew although readers see the same numbers; empty where there is none."""
    if not count:
        return ""
    gets = "would get" if would else "get" if count > 1 else "gets"
    return f"{plural(count, 'window')} {gets} another closing time (closed_at) and nothing else: no number differs"


def failed_in_words(failed: Mapping[str, int]) -> str:
    """Expectations that failed, by severity: 1 critical, 2 warnings, 1 for information; `none`."""
    critical, warnings, infos = (failed.get(severity, 0) for severity in ("critical", "warning", "info"))
    parts = [
        f"{critical:,} critical" if critical else "",
        plural(warnings, "warning") if warnings else "",
        f"{infos:,} for information" if infos else "",
    ]
    return ", ".join(filter(None, parts)) or "none"
