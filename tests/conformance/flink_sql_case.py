"""The case format `flink-sql-case/1`: one Flink SQL query, its records, and what real Flink did with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.durations import HOUR, parse_duration
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import AverageOfLast, Lag
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, WallClockWindows, changes_of
from spark_jobs.eventtime.windows import RegularWindows, SessionWindows, SlidingWindows
from tests.conformance.case import Case

FORMAT = "flink-sql-case/1"
_EMIT = "table.exec.emit."


@dataclass(frozen=True)
class Version:
    """One version of Flink: its name, and what the case records of it."""

    name: str
    expected: dict[str, Any]

    @property
    def is_new(self) -> bool:
        """Whether it is one of those since 2.0."""
        return self.name.startswith("2.")

    @property
    def emits_last_row(self) -> bool:
        """Whether a tick emits the last row's watermark, not the largest."""
        return self.name == "1.20.0"


class SqlCase(Case):
    """One case file; the watermark's strategy and the windows depend on the version of Flink."""

    @cached_property
    def versions(self) -> list[Version]:
        document = self.document
        return [
            Version(name, document.get(f"expected_{name}", document["expected"])) for name in document["flink_versions"]
        ]

    @property
    def windows(self) -> RegularWindows | SessionWindows | WallClockWindows:
        """The windows, in the session zone's wall clock where the event time is a TIMESTAMP_LTZ."""
        config, assigner = self.config, self.assigner
        if not isinstance(assigner, RegularWindows | SessionWindows):
            raise TypeError(f"{type(assigner).__name__} in a case of Flink SQL")
        if config["time"] != "TIMESTAMP_LTZ" or config["time_zone"] == "UTC":
            return assigner
        zone = ZoneInfo(config["time_zone"])
        if isinstance(assigner, SessionWindows):
            return WallClockSessions(assigner.gap, zone)
        return WallClockWindows(assigner, zone)

    def sql_strategy(self, version: Version) -> WatermarkStrategy:
        """The strategy of the table's watermark; before 1.20.1 a tick emits the last row's."""
        lag = self.config["watermark"]["lag_ms"]
        per_event = self.config["emission"]["mode"] == "per_event"
        generator = AverageOfLast(1, lag) if version.emits_last_row and not per_event else Lag(lag)
        strategy = self.strategy(all_idle_emits_maximum=version.is_new)
        scope = WatermarkScope.PARTITION if self.config["watermark_push_down"] else WatermarkScope.SUBTASK
        return WatermarkStrategy(
            **{
                **{name: getattr(strategy, name) for name in strategy.__slots__},
                "generator": generator,
                "scope": scope,
            }
        )

    def slices(self, version: Version) -> Slices | None:
        """The slices of the first phase; None: there is one phase."""
        return self.gathered(version) if self.is_in_two_phases else None

    def gathered(self, version: Version) -> Slices | None:
        """The slices in which the window operator gathers records; None: the windows are no table function's."""
        windows = self.windows
        if self.config["form"] == "group_by" or not isinstance(windows, RegularWindows | WallClockWindows):
            return None
        return Slices.of(windows, flushes_by_offset=version.is_new)

    def losing(self, version: Version) -> Slices | None:
        """The same where Flink itself can lose records; None: it loses none."""
        slices = self.gathered(version)
        return slices if slices is not None and slices.may_lose else None

    @property
    def allowed_lateness(self) -> int:
        """Late records fire again only with late-fire on: within `allow-lateness`, else the state's time to live."""
        settings = self.config.get("settings", {})
        if settings.get(f"{_EMIT}late-fire.enabled") != "true":
            return 0
        return parse_duration(settings.get(f"{_EMIT}allow-lateness") or settings["table.exec.state.ttl"])

    def changelog(self, firings: list[tuple[int, int, list[Any]]]) -> list[list[Any]]:
        """The rows of firings `(at, pane, row)`: each pane takes back the one before."""
        rows: list[list[Any]] = []
        before: dict[tuple[Any, ...], list[Any]] = {}
        for at, pane, row in sorted(firings, key=lambda firing: firing[:2]):
            identity = tuple(row[:3])
            if pane:
                rows.append(["-U", at, *before[identity]])
            rows.append(["+U" if pane else "+I", at, *row])
            before[identity] = row
        return rows

    @property
    def why_not_replayed(self) -> str:
        """Why a definition of this job is refused; empty: it is replayed."""
        config = self.config
        if config.get("settings", {}).get(f"{_EMIT}early-fire.enabled") == "true":
            return "early firings come by the job's clock"
        if not config["watermark_push_down"] and "assigner_interval_ms" in config:
            return "behind the source the watermark is emitted by its own size"
        if isinstance(self.assigner, SlidingWindows) and not self._closes_in_order:
            return "Flink fires a window of HOP twice where a later one closes first"
        return ""

    @property
    def _closes_in_order(self) -> bool:
        """Whether windows of a wall clock's time close in the order of their ends, as far as Flink can tell."""
        windows = self.windows
        if not isinstance(windows, WallClockWindows):
            return True
        found = {window for record in self.records for window in windows.assign(record.timestamp)}
        closes = [window.max_timestamp for window in sorted(found)]
        return closes == sorted(closes) and all(change % HOUR == 0 for change in changes_of(windows.zone))

    @property
    def is_decided_by_the_log(self) -> bool:
        """Whether no checkpoint decides."""
        return not self.config.get("checkpoints_before")

    @property
    def is_in_two_phases(self) -> bool:
        """Whether Flink plans two phases, as a definition has it."""
        config = self.config
        is_function = config["form"] == "table_function" and config["window"]["kind"] != "session"
        return is_function and config["agg_phase_strategy"] != "ONE_PHASE"


def first_difference(case: SqlCase, version: Version, rows: list[list[Any]]) -> str | None:
    """One line that describes the first difference from the rows that Flink gave; None if there is none.

    Within the step of one record the order means nothing.
    """
    wanted = _steps(version.expected["rows"])
    got = _steps(rows)
    for at in sorted(wanted.keys() | got.keys()):
        missing, extra = (
            wanted.get(at, Counter()) - got.get(at, Counter()),
            got.get(at, Counter()) - wanted.get(at, Counter()),
        )
        if missing or extra:
            return f"after {at} records: expected {sorted(missing)[:3]}; got {sorted(extra)[:3]}"
    return None


def _steps(rows: list[list[Any]]) -> dict[int, Counter[str]]:
    steps: dict[int, Counter[str]] = {}
    for row in rows:
        steps.setdefault(row[1], Counter())[str(row)] += 1
    return steps
