"""A naive simulator of the golden cases: the second opinion beside the product's own engines.

It imports nothing from the product. It walks through the records and the timer's ticks in one global order and
keeps lists, not clever state: what a generator emits is worked out again from everything that it was ever given,
idleness from the list of all probes, the contents of a window from the list of all accepted records.
Slow (about the square of the number of records) and meant to be read beside `flink/README.md`, whose rules it cites.

Times are epoch milliseconds; a window [start, end) has the last timestamp end - 1.
"""

from __future__ import annotations

import importlib
from itertools import groupby
from typing import Any

MIN = -(2**63)
"""Long.MIN_VALUE: "no watermark yet" (rule 3), and the timestamp of a record without one (rule 29)."""
MAX = 2**63 - 1
"""Long.MAX_VALUE: the watermark at the end of the input (rule 23), and "for ever" as a lateness."""

FIRING_COLUMNS = [
    "key", "start", "end", "pane", "watermark", "at", "cause", "clock",
    "count", "sum", "min", "max", "checksum", "elements",
]  # fmt: skip
BATCH_COLUMNS = ["key", "start", "end", "count", "sum", "min", "max", "checksum"]

NO_TIMESTAMP = {
    "class": "java.lang.RuntimeException",
    "message": "Record has Long.MIN_VALUE timestamp (= no timestamp marker). "
    "Did you forget to call 'DataStream.assignTimestampsAndWatermarks(...)'?",
}


def simulate(case: dict[str, Any], flink_version: str = "2.3.0") -> dict[str, Any]:
    """The `expected` of a case: `flink_version`, `streaming` and `batch`, as `flink/README.md` describes them."""
    return {
        "flink_version": flink_version,
        "streaming": Simulation(case, flink_version).run(),
        "batch": batch(case),
    }


def all_idle_takes_maximum(flink_version: str) -> bool:
    """Rule 13: since Flink 2.2 the watermark jumps to the maximum when all partitions are idle."""
    return tuple(int(part) for part in flink_version.split(".")[:2]) >= (2, 2)


def wrapped(number: int) -> int:
    """`number` as a Java long: an addition that overflows comes out at the other end."""
    return (number - MIN) % 2**64 + MIN


def shown(watermark: int) -> int | None:
    return None if watermark == MIN else watermark


class Record:
    """One row of a case. `index` is its place in the global order."""

    def __init__(self, index: int, row: list[Any]) -> None:
        self.index = index
        self.partition, self.offset, self.arrival, self.key, timestamp, self.value = row[:6]
        self.timestamp: int = MIN if timestamp is None else timestamp
        self.marker: bool = len(row) > 6 and row[6] == 1
        self.stream: str | None = row[7] if len(row) > 7 else None


class Tick:
    """One tick of the periodic timer, at processing time `now`, as a generator sees it."""

    def __init__(self, now: int) -> None:
        self.now = now


class JobFailed(Exception):
    """The job fails at the current record; the argument is the `error` of the case, without `at`."""


# ---------------------------------------------------------------- watermark generators


def emitted(watermark: dict[str, Any], mode: str, history: list[Record | Tick]) -> list[int]:
    """The watermarks that the LAST entry of `history` makes a generator emit.

    `history` is everything that the generator was given: its records, and the ticks that reached it.
    A mode decides when the generators speak that have no mind of their own: `per_event` after each record,
    `periodic` at each tick. Markers, custom classes and the advancing of `advance_after_wait` do not ask.
    """
    last = history[-1]
    kind = watermark["kind"]
    on_tick = isinstance(last, Tick)
    if kind == "none":
        return []
    if kind == "punctuated":
        return [] if on_tick or not last.marker else [last.timestamp - watermark["marker_lag_ms"]]
    if kind == "custom":
        return replayed_custom(watermark, history)
    if kind == "advance_after_wait":
        speaks = on_tick or mode == "per_event"
        return [advanced_after_wait(watermark, history)] if speaks else []
    if on_tick != (mode == "periodic"):
        return []
    if kind == "time_lag":
        return [(last.now if isinstance(last, Tick) else last.arrival) - watermark["lag_ms"]]

    records = [entry for entry in history if isinstance(entry, Record)]
    timestamps = [record.timestamp for record in records]
    if kind in ("monotonous", "bounded_out_of_orderness"):
        bound = watermark.get("bound_ms", 0)
        return [max([MIN + bound + 1, *timestamps]) - bound - 1]

    records = [record for record in records if record.timestamp != MIN]
    timestamps = [record.timestamp for record in records]
    if not records:
        return []
    if kind == "lag":
        return [max(timestamps) - watermark["lag_ms"]]
    if kind == "average_of_last":
        recent = timestamps[-watermark["n"] :]
        return [sum(recent) // len(recent) - watermark["lag_ms"]]
    if kind == "interleaved":
        streams = watermark.get("streams") or {record.stream for record in records}
        per_stream = [[r.timestamp for r in records if r.stream == stream] for stream in streams]
        if not all(per_stream):
            return []
        return [min(max(timestamps) for timestamps in per_stream) - watermark["bound_ms"] - 1]
    raise ValueError(f"unknown watermark generator {kind!r}")


def advanced_after_wait(watermark: dict[str, Any], history: list[Record | Tick]) -> int:
    """Rule 8. `Tick`s are one interval apart, the interval is `watermark["interval_ms"]`."""
    bound = watermark["bound_ms"]
    highest = base = logical = MIN + bound + 1
    for entry in history:
        if isinstance(entry, Record):
            highest = base = logical = max(highest, entry.timestamp)
        else:
            logical += watermark["interval_ms"]
            if logical - base > watermark["wait_ms"]:
                highest = logical
    return highest - bound - 1


class Collected:
    """The `output` that a custom generator emits to."""

    def __init__(self) -> None:
        self.watermarks: list[int] = []

    def emit_watermark(self, watermark: int) -> None:
        self.watermarks.append(watermark)


def replayed_custom(watermark: dict[str, Any], history: list[Record | Tick]) -> list[int]:
    """A fresh instance of the class is given the whole history; what it emits on the last entry counts."""
    module, _, name = watermark["class"].partition(":")
    generator = getattr(importlib.import_module(module), name)(**watermark.get("parameters", {}))
    for entry in history:
        output = Collected()
        if isinstance(entry, Tick):
            generator.on_periodic_emit(entry.now, output)
        else:
            generator.on_event(entry.timestamp, entry.arrival, output)
    return output.watermarks


# ---------------------------------------------------------------- source: partitions, subtasks, valve


class Partition:
    """What one generator reads: a partition, or (scope `subtask`) all partitions of a subtask."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.watermark = MIN
        self.idle = False
        self.records_seen = 0
        self.history: list[Record | Tick] = []
        self.probes: list[tuple[int, int]] = []  # (processing time, records seen until then)

    def is_quiet(self, timeout: int) -> bool:
        """Rule 10, at the last of the probes.

        The first probe after a record only sees that there was activity, the next one starts the countdown;
        a partition without any record counts from the first probe. Idle strictly more than `timeout` later.
        """
        since_last_record = [now for now, seen in self.probes if seen == self.records_seen]
        counting = since_last_record[1:] if self.records_seen else since_last_record
        return bool(counting) and counting[-1] - counting[0] > timeout


class Subtask:
    """A source subtask: its partitions, their combined watermark, and the status of the stream it sends."""

    def __init__(self, channel: int, numbers: list[int], per_partition: bool) -> None:
        self.channel = channel
        self.numbers = numbers
        self.partitions = [Partition(number) for number in numbers] if per_partition else [Partition(None)]
        self.combined = MIN
        self.idle = False

    def partition_of(self, record: Record) -> Partition:
        return next(p for p in self.partitions if p.number in (record.partition, None))


class Channel:
    """What the valve knows of one subtask."""

    def __init__(self) -> None:
        self.watermark = MIN
        self.idle = False
        self.aligned = True


class Simulation:
    """One run of a case; `run()` gives its `expected.streaming`."""

    def __init__(self, case: dict[str, Any], flink_version: str) -> None:
        self.config = config = case["config"]
        self.records = [Record(index, row) for index, row in enumerate(case["records"])]
        self.interval = config["emission"].get("interval_ms", 0)
        self.generator = {**config["watermark"], "interval_ms": self.interval}
        self.per_partition = config.get("watermark_scope", "partition") == "partition"
        self.jumps_when_all_idle = all_idle_takes_maximum(flink_version)

        groups = config.get("subtasks") or [list(range(config["partitions"]))]
        self.subtasks = [Subtask(n, group, self.per_partition) for n, group in enumerate(groups)]
        self.channels = [Channel() for _ in groups]
        self.valve_idle = False
        self.watermark = MIN  # what the valve sent last: the window operator's watermark

        self.at = 0
        self.clock = 0
        self.ended = False
        self.windows = WindowOperator(config, self)
        self.watermark_before: list[tuple[int, int | None]] = []
        self.emissions: list[list[Any]] = []
        self.status_changes: list[list[Any]] = []
        self.partition_idle_changes: list[list[Any]] = []

    def run(self) -> dict[str, Any]:
        error = None
        try:
            for step in self.steps():
                if isinstance(step, Tick):
                    self.clock = step.now
                    for subtask in self.subtasks:
                        self.tick(subtask)
                else:
                    self.clock = step.arrival
                    self.take(step)
        except JobFailed as failure:
            error = {**failure.args[0], "at": self.at}
        final_source_watermark = self.watermark
        if error is None and self.config["end_of_input"] == "flush":
            self.end_of_input()
        return self.result(final_source_watermark, error)

    def steps(self) -> list[Record | Tick]:
        """Records and ticks in the order in which they happen. A tick due at t runs before a record of t (rule 7)."""
        clock = self.config.get("clock", {})
        arrivals = [record.arrival for record in self.records]
        start = clock.get("start_ms", arrivals[0] if arrivals else 0)
        self.end_clock = max([clock.get("end_ms", start), *arrivals])
        ticks: list[Record | Tick] = []
        if self.interval > 0:
            self.first_tick = start + self.interval
            ticks += [Tick(now) for now in range(start + self.interval, self.end_clock + 1, self.interval)]
        return sorted(
            [*ticks, *self.records],
            key=lambda step: (step.now, 0) if isinstance(step, Tick) else (step.arrival, 1),
        )

    def take(self, record: Record) -> None:
        """One record: the window operator has it before the generator has (rule 2)."""
        self.watermark_before.append((record.index, shown(self.watermark)))
        self.at = record.index + 1
        if record.timestamp == MIN and self.config.get("null_timestamp", "fail") == "drop":
            return
        self.windows.take(record)

        subtask = next(s for s in self.subtasks if record.partition in s.numbers)
        partition = subtask.partition_of(record)
        partition.records_seen += 1
        partition.history.append(record)
        for watermark in emitted(self.generator, self.config["emission"]["mode"], partition.history):
            raised = watermark > partition.watermark
            self.receive(partition, watermark)
            if raised and watermark > subtask.combined:
                self.combine(subtask)

    def tick(self, subtask: Subtask) -> None:
        """One tick of one subtask: all its partitions are probed, then combined once."""
        for partition in subtask.partitions:
            partition.probes.append((self.clock, partition.records_seen))
            timeout = self.generator.get("idleness_ms")
            if timeout is not None and partition.is_quiet(timeout):
                self.set_idle(partition, True)
                continue
            partition.history.append(Tick(self.clock))
            for watermark in emitted(self.generator, self.config["emission"]["mode"], partition.history):
                self.receive(partition, watermark)
        self.combine(subtask)
        if self.is_silent_from_the_start(subtask) and not subtask.idle:
            subtask.idle = True
            self.valve_status(subtask.channel, idle=True)

    def is_silent_from_the_start(self, subtask: Subtask) -> bool:
        """Rule 31: no watermark yet, strictly more than the timeout after the first tick, whatever the records do."""
        timeout = self.generator.get("idleness_ms")
        if timeout is None or not self.per_partition or subtask.combined != MIN:
            return False
        return self.clock - self.first_tick > timeout

    def receive(self, partition: Partition, watermark: int) -> None:
        """A generator spoke: its partition is active again (rule 11), and its watermark never goes back (rule 4)."""
        self.set_idle(partition, False)
        partition.watermark = max(partition.watermark, watermark)

    def set_idle(self, partition: Partition, idle: bool) -> None:
        if partition.idle != idle:
            partition.idle = idle
            if not self.per_partition:
                return
            self.partition_idle_changes.append([self.at, self.clock, partition.number, "IDLE" if idle else "ACTIVE"])

    def combine(self, subtask: Subtask) -> None:
        """Rules 5, 13, 14: the minimum over the active partitions; the maximum when there is none."""
        active = [p.watermark for p in subtask.partitions if not p.idle]
        if active:
            candidate = min(active)
        elif self.jumps_when_all_idle:
            candidate = max(p.watermark for p in subtask.partitions)
        else:
            candidate = MIN
        if candidate > subtask.combined:
            subtask.combined = candidate
            if subtask.idle:
                subtask.idle = False
                self.valve_status(subtask.channel, idle=False)
            self.valve_watermark(subtask.channel, candidate)
        if not active and not subtask.idle:
            subtask.idle = True
            self.valve_status(subtask.channel, idle=True)

    # -- the valve in front of the window operator (Flink's StatusWatermarkValve)

    def valve_watermark(self, number: int, watermark: int) -> None:
        channel = self.channels[number]
        if self.valve_idle or channel.idle or watermark <= channel.watermark:
            return
        channel.watermark = watermark
        if watermark >= self.watermark:
            channel.aligned = True
        self.valve_minimum()

    def valve_status(self, number: int, idle: bool) -> None:
        channel = self.channels[number]
        if channel.idle == idle:
            return
        channel.idle = idle
        if not idle:
            channel.aligned = channel.watermark >= self.watermark
            if self.valve_idle:
                self.valve_idle = False
                self.status_changes.append([self.at, self.clock, "ACTIVE"])
            return
        channel.aligned = False
        held_the_watermark = channel.watermark == self.watermark
        if not all(c.idle for c in self.channels):
            if held_the_watermark:
                self.valve_minimum()
            return
        if held_the_watermark:
            self.send(max(c.watermark for c in self.channels))
        self.valve_idle = True
        self.status_changes.append([self.at, self.clock, "IDLE"])

    def valve_minimum(self) -> None:
        aligned = [c.watermark for c in self.channels if c.aligned]
        if aligned:
            self.send(min(aligned))

    def send(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        before, self.watermark = self.watermark, watermark
        if not self.ended:
            self.emissions.append([self.at, self.clock, watermark])
        self.windows.advance(before, watermark)

    def end_of_input(self) -> None:
        """All subtasks send the highest watermark together (rule 23), but an idle one's is lost (rule 15)."""
        self.clock = self.end_clock
        self.ended = True
        active = [channel for channel in self.channels if not channel.idle]
        for channel in active:
            channel.watermark, channel.aligned = MAX, True
        if active and not self.valve_idle:
            self.valve_minimum()

    def result(self, final_source_watermark: int, error: dict[str, Any] | None) -> dict[str, Any]:
        idleness = "idleness_ms" in self.generator
        firings = self.windows.firings
        limit = self.config.get("max_element_entries")
        if limit is not None and sum(row[8] for row in firings) > limit:
            firings = [[*row[:-1], None] for row in firings]
        result: dict[str, Any] = {
            "firing_columns": FIRING_COLUMNS,
            "firings": firings,
            "late": self.windows.late,
            "watermark_before_rle": first_of_each_run(self.watermark_before),
        }
        if self.interval > 0:
            result["emissions"] = self.emissions
        if idleness:
            result["status_changes"] = self.status_changes
        if idleness and self.per_partition and self.jumps_when_all_idle:
            result["partition_idle_changes"] = self.partition_idle_changes
        if self.per_partition:
            by_number = {p.number: p.watermark for s in self.subtasks for p in s.partitions}
            result["final_partition_watermarks"] = [shown(by_number[n]) for n in sorted(by_number)]
        result["final_source_watermark"] = shown(final_source_watermark)
        result["final_watermark"] = shown(self.watermark)
        result["error"] = error
        return result


def first_of_each_run(watermark_before: list[tuple[int, int | None]]) -> list[list[int | None]]:
    """The first [record index, watermark] of each run of equal watermarks."""
    return [list(next(group)) for _, group in groupby(watermark_before, key=lambda entry: entry[1])]


# ---------------------------------------------------------------- windows


def assigned(window: dict[str, Any], timestamp: int) -> list[tuple[int, int]]:
    """The windows [start, end) of a timestamp, in Flink's order; for a session the one it opens alone (16, 24)."""
    kind = window["kind"]
    offset = window.get("offset_ms", 0)
    if kind == "session":
        return [(timestamp, timestamp + window["gap_ms"])]
    size = window["size_ms"]
    if kind == "tumbling":
        start = timestamp - (timestamp - offset) % size
        return [(start, start + size)]
    if kind == "sliding":
        slide = window["slide_ms"]
        latest = timestamp - (timestamp - offset) % slide
        return [(start, start + size) for start in range(latest, timestamp - size, -slide)]
    if kind == "cumulative":
        start = timestamp - (timestamp - offset) % size
        ends = range(start + window["step_ms"], start + size + 1, window["step_ms"])
        return [(start, end) for end in ends if end > timestamp]
    raise ValueError(f"unknown window {kind!r}")


def sum_min_max_checksum(records: list[Record]) -> list[Any]:
    """count, sum, min, max, checksum of a window's contents."""
    values = [record.value for record in records]
    modulus = 2147483647
    positions = [((r.partition + 1) * 1000003 + r.offset) % modulus for r in records]
    checksum = sum(x * x % modulus for x in positions) % modulus
    return [len(values), sum(values), min(values), max(values), checksum]


class WindowOperator:
    """Rules 16 to 29.

    Fixed windows: `accepted` is a list of every (record, window) that was not late; a window is nothing but the
    records accepted for it. Sessions: `sessions` is a list of those still held, each with its records.
    """

    def __init__(self, config: dict[str, Any], simulation: Simulation) -> None:
        self.window = config["window"]
        self.lateness = config["allowed_lateness_ms"]
        self.simulation = simulation
        self.accepted: list[tuple[Record, tuple[int, int]]] = []
        self.sessions: list[tuple[str, int, int, list[Record]]] = []
        self.firings: list[list[Any]] = []
        self.late: list[list[Any]] = []

    def take(self, record: Record) -> None:
        watermark = self.simulation.watermark
        session = self.window["kind"] == "session"
        entered = self.into_session(record) if session else self.into_fixed_windows(record)
        # Flink adds without a guard against overflow; only a lateness "for ever" gets there.
        if not entered and wrapped(record.timestamp + self.lateness) <= watermark:
            self.late.append([record.index, record.partition, record.offset, shown(watermark)])

    def is_late(self, end: int) -> bool:
        """Rules 18, 22: the state of a window that ends at `end` is gone."""
        return min(end - 1 + self.lateness, MAX) <= self.simulation.watermark

    def into_fixed_windows(self, record: Record) -> bool:
        if record.timestamp == MIN:
            raise JobFailed(NO_TIMESTAMP)
        entered = False
        for window in assigned(self.window, record.timestamp):
            if self.is_late(window[1]):
                continue
            entered = True
            self.accepted.append((record, window))
            if window[1] - 1 <= self.simulation.watermark:
                contents = [r for r, w in self.accepted if w == window and r.key == record.key]
                self.fire(record.key, *window, contents, "E")
        return entered

    def into_session(self, record: Record) -> bool:
        [(start, end)] = assigned(self.window, record.timestamp)
        reached = [s for s in self.sessions if s[0] == record.key and s[1] <= end and s[2] >= start]
        start = min([start, *(s[1] for s in reached)])
        end = max([end, *(s[2] for s in reached)])
        changes = [s for s in reached if (s[1], s[2]) != (start, end)]
        if changes and wrapped(end - 1 + self.lateness) <= self.simulation.watermark:
            raise JobFailed(
                {
                    "class": "java.lang.UnsupportedOperationException",
                    "message": "The end timestamp of an event-time window cannot become earlier than the current "
                    f"watermark by merging. Current watermark: {self.simulation.watermark} "
                    f"window: TimeWindow{{start={start}, end={end}}}",
                }
            )
        if self.is_late(end):
            return False
        contents = sorted([r for s in reached for r in s[3]] + [record], key=lambda r: r.index)
        self.sessions = [s for s in self.sessions if s not in reached] + [(record.key, start, end, contents)]
        if end - 1 <= self.simulation.watermark:
            self.fire(record.key, start, end, contents, "E")
        return True

    def advance(self, before: int, watermark: int) -> None:
        """A watermark fires each window whose last timestamp it passes, in ascending end (rule 17)."""
        if self.window["kind"] == "session":
            held = self.sessions
        else:
            closing = {(r.key, w) for r, w in self.accepted if before < w[1] - 1 <= watermark}
            held = [
                (key, *window, [r for r, w in self.accepted if w == window and r.key == key]) for key, window in closing
            ]
        for key, start, end, contents in sorted(held, key=lambda s: (s[2], s[1], s[0])):
            if before < end - 1 <= watermark:
                self.fire(key, start, end, contents, "W")
        self.sessions = [s for s in self.sessions if not self.is_late(s[2])]

    def fire(self, key: str, start: int, end: int, contents: list[Record], cause: str) -> None:
        pane = len([row for row in self.firings if row[:3] == [key, start, end]])
        clock = self.simulation.clock if self.simulation.interval > 0 else None
        elements = [number for r in contents for number in (r.partition, r.offset)]
        self.firings.append(
            [
                *(key, start, end, pane, self.simulation.watermark, self.simulation.at, cause, clock),
                *sum_min_max_checksum(contents),
                elements,
            ]
        )


def batch(case: dict[str, Any]) -> dict[str, Any]:
    """`expected.batch`: no watermark, nothing late, every window once, by key and then time (rule 30)."""
    config = case["config"]
    records = [Record(index, row) for index, row in enumerate(case["records"])]
    if config.get("null_timestamp", "fail") == "drop":
        records = [record for record in records if record.timestamp != MIN]
    session = config["window"]["kind"] == "session"
    missing = not session and any(record.timestamp == MIN for record in records)
    result: dict[str, Any] = {"firing_columns": BATCH_COLUMNS, "firings": [], "late": [], "error": None}
    if missing:
        return {**result, "error": NO_TIMESTAMP}

    contents: dict[tuple[str, int, int], list[Record]] = {}
    last = None
    for record in sorted(records, key=lambda r: (r.key, r.timestamp)):
        for start, end in assigned(config["window"], record.timestamp):
            window = (record.key, start, end)
            if session and last is not None and last[0] == record.key and last[2] >= start:
                window = (record.key, last[1], end)
                contents[window] = contents.pop(last)
            contents.setdefault(window, []).append(record)
            last = window
    result["firings"] = [[*window, *sum_min_max_checksum(contents[window])] for window in sorted(contents)]
    return result


# ---------------------------------------------------------------- comparing


def comparable(streaming: dict[str, Any]) -> dict[str, Any]:
    """`streaming` with the firings of each (at, watermark, cause) group in one order: among equals it means nothing."""
    rows = sorted(streaming["firings"], key=lambda row: (row[5], row[4], row[6], row[2], row[1], row[0], row[3]))
    return {**streaming, "firings": rows}
