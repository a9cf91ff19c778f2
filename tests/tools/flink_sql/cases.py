"""The scripted inputs: every case without what Flink did. The seed of a random one is its name."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 1_709_290_000_000
"""Processing time at which the source's timer starts."""
MORNING = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1000)
TUMBLE, HOP = {"kind": "tumbling", "size_ms": HOUR}, {"kind": "sliding", "size_ms": HOUR, "slide_ms": 20 * MINUTE}
CUMULATE = {"kind": "cumulative", "size_ms": HOUR, "step_ms": 15 * MINUTE}
SESSION = {"kind": "session", "gap_ms": 10 * MINUTE}
WINDOWS = {"tumble": TUMBLE, "hop": HOP, "cumulate": CUMULATE, "session": SESSION}


def case(name: str, note: str, records: list[list[Any]], **config: Any) -> dict[str, Any]:
    """A case; what `config` does not say is one subtask, per row, hourly windows of a table function in UTC."""
    lag, idleness = config.pop("lag_ms", 0), config.pop("idleness_ms", None)
    partitions = config.get("partitions") or max((record[0] for record in records), default=0) + 1
    return {
        "format": "flink-sql-case/1",
        "name": name,
        "note": note,
        "config": {
            "partitions": partitions,
            "subtasks": [[partition] for partition in range(partitions)],
            "watermark": {"kind": "lag", "lag_ms": lag, **({"idleness_ms": idleness} if idleness else {})},
            "watermark_push_down": True,
            "emission": {"mode": "per_event", "interval_ms": 0},
            "clock": {"start_ms": START},
            "window": TUMBLE,
            "form": "table_function",
            "time": "TIMESTAMP",
            "time_zone": "UTC",
            "agg_phase_strategy": "AUTO",
            "end_of_input": "flush",
            **config,
        },
        "record_columns": ["partition", "offset", "arrival_ms", "key", "ts_ms", "value"],
        "records": records,
    }


def at(text: str) -> int:
    """`hh:mm`, or `hh:mm:ss`, of the morning as epoch ms."""
    hour, minute, second = (*map(int, text.split(":")), 0)[:3]
    return MORNING + hour * HOUR + minute * MINUTE + second * 1000


def records(script: str, every: int = 1000) -> list[list[Any]]:
    """`A10:50 B11:05/x @30`: partition, time, key (`k` where it says none); `@`: seconds of processing time."""
    rows: list[list[Any]] = []
    arrival = START
    for word in script.split():
        if word.startswith("@"):
            arrival += int(float(word[1:]) * 1000)
            continue
        time, _, key = word[1:].partition("/")
        arrival += every
        offset = sum(row[0] == ord(word[0]) - 65 for row in rows)
        rows.append([ord(word[0]) - 65, offset, arrival, key or "k", at(time), len(rows) + 1])
    return rows


def periodic(interval: int = 200, end: int = 0) -> dict[str, Any]:
    """A watermark at each tick; the timer runs on to `end` ms after its start."""
    clock = {"start_ms": START, **({"end_ms": START + end} if end else {})}
    return {"emission": {"mode": "periodic", "interval_ms": interval}, "clock": clock}


BEHIND = "B10:50 A11:05 A10:30 B11:02"
"""10:30 is behind its own subtask's watermark, 11:05, and before the minimum, 10:50."""


def of_phases() -> Iterator[dict[str, Any]]:
    """Which windows are computed in two phases, and what that does to a record."""
    for strategy in ("AUTO", "ONE_PHASE", "TWO_PHASE"):
        note = f"a record behind its own subtask's watermark, {strategy}"
        for kind, window in WINDOWS.items():
            yield case(
                f"phases_{strategy.lower()}_{kind}", note, records(BEHIND), window=window, agg_phase_strategy=strategy
            )
        for kind in ("tumble", "hop", "session"):
            name = f"phases_{strategy.lower()}_group_by_{kind}"
            yield case(
                name,
                f"GROUP BY: {note}",
                records(BEHIND),
                window=WINDOWS[kind],
                agg_phase_strategy=strategy,
                form="group_by",
            )
    for place, what in ((2, "before the record: nothing to flush"), (3, "between: flushed"), (4, "behind: too late")):
        yield case(f"checkpoint_{place}", f"a checkpoint {what}", records(BEHIND), checkpoints_before=[place])
    yield case("phases_open", "no end of input", records(BEHIND), end_of_input="none")
    yield case("phases_one_subtask", "one subtask with both partitions", records(BEHIND), subtasks=[[0, 1]])
    yield case(
        "phases_own_slice_end_first",
        "the subtask's watermark reaches the next slice end before the minimum passes the window: counted",
        records("B10:50 A11:05 A10:30 A12:01 B11:02"),
    )
    yield case(
        "phases_own_slice_end_later",
        "the minimum passes the window first, then the subtask's watermark reaches the next slice end: dropped",
        records("B10:50 A11:05 A10:30 B11:02 A12:01"),
    )
    yield case(
        "phases_other_key_flushes",
        "a record of another key behind the watermark is flushed at the same moment",
        records("B10:50 A11:05 A10:30/x A10:40/y A12:01/z B11:02"),
    )
    yield case(
        "phases_record_takes_itself",
        "the record that raises the watermark over the next slice end goes with the flush that it causes",
        records("B10:50 A11:05 A10:30 A12:30 B11:02 B12:40"),
    )
    yield case(
        "phases_first_watermark_flushes",
        "the subtask's first watermark flushes whatever it is",
        records("A10:50 B11:20 B11:10 A11:30"),
    )
    yield case("phases_delay", "a delay of 5 minutes", records("B10:50 A11:15 A10:30 A11:04 B11:06"), lag_ms=5 * MINUTE)
    yield case(
        "phases_hop_partly",
        "HOP: late for the window that closed, in time for the others",
        records("B10:50 A11:05 A10:45 B11:02 A11:20 B11:21"),
        window=HOP,
    )
    yield case(
        "phases_cumulate_partly",
        "CUMULATE: late for the window that closed, in time for the longer ones",
        records("B10:10 A10:20 A10:05 B10:18 A10:31 B10:50 A11:00 B11:05"),
        window=CUMULATE,
    )
    yield case(
        "phases_three_subtasks",
        "the minimum waits for the third subtask",
        records("B10:50 C10:55 A11:05 A10:30 B11:02 A12:01 C11:03"),
    )
    yield case(
        "phases_offset",
        "the table function's offset shifts the slice ends",
        records("B10:06 A10:07 A11:04 A11:08 B11:03 B11:09 A12:00 B12:06"),
        window={**TUMBLE, "offset_ms": 5 * MINUTE},
    )
    yield case(
        "phases_offset_one_subtask",
        "an offset, one subtask",
        records("A10:06 A10:50 A11:04 A11:08 A12:00 A12:06"),
        window={**TUMBLE, "offset_ms": 5 * MINUTE},
    )


def of_watermarks() -> Iterator[dict[str, Any]]:
    """What the watermark of a table is: the row with the largest time or the last one, emitted when and by what."""
    yield case(
        "periodic_largest_row",
        "a larger time before a smaller one between two ticks: 2.3 emits the larger, 1.20 the last",
        records("A10:59:50 A11:00:10 A11:00:04 @1 A10:59:58 @1"),
        lag_ms=5000,
        **periodic(3500),
    )
    yield case(
        "per_row_largest_row",
        "the same rows, a watermark for each",
        records("A10:59:50 A11:00:10 A11:00:04 A10:59:58"),
        lag_ms=5000,
    )
    yield case(
        "watermark_equals_row",
        "the watermark is the expression's value: a row with this time is late for nothing",
        records("A10:59 A11:00 A10:59:59 A11:01"),
        lag_ms=0,
    )
    yield case(
        "watermark_last_millisecond",
        "a watermark of the window's last millisecond closes it",
        [*records("A10:59"), [0, 1, START + 9000, "k", at("11:00") - 1, 2], [0, 2, START + 9500, "k", at("10:58"), 3]],
    )
    for push_down in (True, False):
        name = "push_down" if push_down else "behind"
        note = "in the source: the minimum of its partitions" if push_down else "behind the source: one for the subtask"
        yield case(
            f"watermark_{name}_partitions",
            note,
            records("B10:20 A11:05 B10:30 B11:02"),
            subtasks=[[0, 1]],
            watermark_push_down=push_down,
        )
        yield case(
            f"watermark_{name}_subtasks",
            f"{note}; two subtasks",
            records("B10:50 A11:05 A10:30 B11:02 C11:01 C10:40"),
            subtasks=[[0], [1, 2]],
            watermark_push_down=push_down,
        )
    yield case(
        "watermark_behind_interval",
        "behind the source it is emitted once it rises by more than the interval",
        records("A10:59:50 A11:00:02 A10:59:59 A11:00:40 A10:59:58"),
        watermark_push_down=False,
        assigner_interval_ms=30_000,
    )
    yield case(
        "empty_subtask", "more subtasks than partitions: nothing closes", records("A10:10 A11:20"), subtasks=[[0], []]
    )
    yield case(
        "empty_partition",
        "a partition without rows holds the watermark back",
        records("A10:10 A11:20"),
        partitions=2,
        subtasks=[[0, 1]],
        end_of_input="none",
    )


def of_idleness() -> Iterator[dict[str, Any]]:
    """Idle subtasks, and what lies in their buffers."""
    for strategy in ("AUTO", "ONE_PHASE"):
        yield case(
            f"idle_subtask_{strategy.lower()}",
            "a subtask becomes idle with a record in its buffer; the others close the window",
            records("A10:30 B10:50 @3 B11:05 @1 A11:10 B11:20"),
            idleness_ms=1000,
            agg_phase_strategy=strategy,
            **periodic(200),
        )
        yield case(
            f"idle_partition_{strategy.lower()}",
            "a partition becomes idle, its subtask stays active",
            records("A10:30 B10:50 C10:55 @0.5 C10:56 @0.6 C10:57 @0.6 B11:05 C11:10 @0.6 A11:10 @1 B11:20"),
            subtasks=[[0, 2], [1]],
            idleness_ms=1000,
            agg_phase_strategy=strategy,
            **periodic(200),
        )
        yield case(
            f"idle_all_{strategy.lower()}",
            "all are idle, then one comes back",
            records("A10:30 B10:50 @9 A10:40 A11:01 B11:02"),
            idleness_ms=1000,
            agg_phase_strategy=strategy,
            **periodic(200),
        )
        yield case(
            f"idle_empty_subtask_{strategy.lower()}",
            "an empty subtask holds the watermark until it is idle",
            records("A10:10 A11:20 @5 A11:30 A12:10"),
            subtasks=[[0], []],
            idleness_ms=1000,
            agg_phase_strategy=strategy,
            **periodic(200),
        )


def instants(first: str, minutes: list[int], partitions: int = 1) -> list[list[Any]]:
    """Records of TIMESTAMP_LTZ, so many minutes after an instant."""
    origin = int(datetime.fromisoformat(first).timestamp() * 1000)
    return [
        [n % partitions, n // partitions, START + 1000 * (n + 1), "k", origin + minute * MINUTE, n + 1]
        for n, minute in enumerate(minutes)
    ]


CHANGES = {
    "berlin_autumn": ("Europe/Berlin", "2024-10-26T21:10+00:00"),
    "berlin_spring": ("Europe/Berlin", "2024-03-30T22:10+00:00"),
    "new_york_autumn": ("America/New_York", "2024-11-03T03:10+00:00"),
    "shanghai": ("Asia/Shanghai", "2024-03-01T13:10+00:00"),
    "lord_howe_autumn": ("Australia/Lord_Howe", "2024-04-06T12:10+00:00"),
    "kolkata": ("Asia/Kolkata", "2024-03-01T21:10+00:00"),
    "kathmandu": ("Asia/Kathmandu", "2024-03-01T21:10+00:00"),
    "utc": ("UTC", "2024-10-26T21:10+00:00"),
    "sao_paulo_autumn": ("America/Sao_Paulo", "2018-02-17T22:10+00:00"),
    "sao_paulo_spring": ("America/Sao_Paulo", "2018-11-03T23:10+00:00"),
    "havana_autumn": ("America/Havana", "2024-11-03T01:10+00:00"),
    "havana_spring": ("America/Havana", "2024-03-10T01:10+00:00"),
}
LONG = {
    "hour": TUMBLE,
    "half_hour": {"kind": "tumbling", "size_ms": 30 * MINUTE},
    "ninety": {"kind": "tumbling", "size_ms": 90 * MINUTE},
    "day": {"kind": "tumbling", "size_ms": DAY},
    "hop": {"kind": "sliding", "size_ms": 2 * HOUR, "slide_ms": 30 * MINUTE},
    "cumulate": {"kind": "cumulative", "size_ms": DAY, "step_ms": 6 * HOUR},
    "session": {"kind": "session", "gap_ms": 30 * MINUTE},
}


SELDOM = ("half_hour", "ninety", "cumulate")


def of_zones() -> Iterator[dict[str, Any]]:
    """Windows over TIMESTAMP_LTZ, in the session zone's wall clock."""
    steady = [0, 100, 120, 160, 180, 220, 240, 250, 275, 300, 345, 400]
    shuffled = [0, 20, 100, 95, 160, 120, 185, 175, 170, 250, 235, 230, 300, 280, 345, 400, 380]
    for change, (zone, first) in CHANGES.items():
        for kind, window in LONG.items():
            if not zone.startswith(("Europe", "Asia/Kolkata", "America/Sao")) and kind in SELDOM:
                continue
            yield case(
                f"zone_{change}_{kind}",
                f"{kind} in {zone}",
                instants(first, steady),
                window=window,
                time="TIMESTAMP_LTZ",
                time_zone=zone,
                lag_ms=MINUTE,
            )
        for strategy, form in (("AUTO", "table_function"), ("ONE_PHASE", "table_function"), ("AUTO", "group_by")):
            suffix = f"{strategy.lower()}_{form}"
            yield case(
                f"zone_{change}_late_{suffix}",
                f"late records and two subtasks in {zone}",
                instants(first, shuffled, 2),
                time="TIMESTAMP_LTZ",
                time_zone=zone,
                agg_phase_strategy=strategy,
                form=form,
            )
        for form in ("table_function", "group_by"):
            yield case(
                f"zone_{change}_late_session_{form}",
                f"late records, two subtasks and sessions in {zone}",
                instants(first, shuffled, 2),
                window=LONG["session"],
                time="TIMESTAMP_LTZ",
                time_zone=zone,
                form=form,
            )
    for form in ("table_function", "group_by"):
        yield case(
            f"zone_none_{form}",
            "TIMESTAMP has no zone: that of the session changes nothing",
            instants("2024-10-26T21:10+00:00", steady),
            time_zone="Europe/Berlin",
            form=form,
        )


EMIT = "table.exec.emit."


def of_emission() -> Iterator[dict[str, Any]]:
    """`table.exec.emit.*`, of windows in GROUP BY."""
    late = records("A10:10 A10:50 A11:30 A10:20 A11:40 A10:40 A13:10 A10:55 A13:20")
    lateness = {EMIT + "allow-lateness": "2 h"}
    on_late = {EMIT + "late-fire.enabled": "true", EMIT + "late-fire.delay": "0 s"}
    early = {EMIT + "early-fire.enabled": "true", EMIT + "early-fire.delay": "0 s"}
    settings: dict[str, Mapping[str, str]] = {
        "none": {},
        "allow_lateness": lateness,
        "late_fire": {**lateness, **on_late},
        "late_fire_alone": on_late,
        "late_fire_and_ttl": {**on_late, "table.exec.state.ttl": "2 h"},
        "early_fire": early,
        "early_and_late_fire": {**lateness, **on_late, **early},
    }
    for name, chosen in settings.items():
        for kind in ("tumble", "hop", "session"):
            yield case(
                f"emit_{name}_group_by_{kind}",
                f"{kind} in GROUP BY with {dict(chosen) or 'no setting'}",
                late,
                form="group_by",
                settings=dict(chosen),
                window=WINDOWS[kind],
            )
    yield case(
        "emit_late_fire_table_function", "table functions take no notice", late, settings={**lateness, **on_late}
    )


def of_chance() -> Iterator[dict[str, Any]]:
    """Random records over every window, number of subtasks and way of emission."""
    for number in range(72):
        yield random_case(f"r{number:03d}")


def random_case(name: str) -> dict[str, Any]:
    """The random case of this name, which is the seed."""
    draw = random.Random(name)
    partitions = draw.choice([1, 2, 2, 3, 3, 4])
    count = draw.choice([20, 40, 60])
    ticking = draw.random() < 0.5
    idle = ticking and draw.random() < 0.4
    rows: list[list[Any]] = []
    arrival, line = START, at("10:00")
    behind = [draw.choice([0, 0, 10, 25, 50]) * MINUTE for _ in range(partitions)]
    for index in range(count):
        partition = draw.randrange(partitions)
        arrival += draw.choice([0, 20, 100, 250, 400] if ticking else [0, 1, 500])
        arrival += draw.choice([0] * 12 + [4000]) if idle else 0
        line += draw.choice([0, 2, 5, 9]) * MINUTE
        jitter = draw.choice([0, 0, 0, -3, -12, -40, -70, 4]) * MINUTE
        time = line - behind[partition] + jitter + draw.choice([0, 0, 1, -1])
        rows.append([partition, index, arrival, draw.choice("ab"), time, draw.randrange(-50, 50)])
    groups = draw.sample(range(partitions), partitions)
    width = draw.choice([1, 1, 2, partitions])
    kind = draw.choice(["tumble", "hop", "cumulate", "tumble", "hop", "cumulate", "session"])
    small = {
        "tumble": {"kind": "tumbling", "size_ms": 10 * MINUTE},
        "hop": {"kind": "sliding", "size_ms": 30 * MINUTE, "slide_ms": 10 * MINUTE},
        "cumulate": {"kind": "cumulative", "size_ms": HOUR, "step_ms": 10 * MINUTE},
    }
    form = draw.choice(["table_function"] * 4 + ["group_by"]) if kind != "cumulate" else "table_function"
    options: dict[str, Any] = {
        "partitions": partitions,
        "subtasks": [sorted(groups[i : i + width]) for i in range(0, partitions, width)],
        "window": draw.choice([WINDOWS[kind], small.get(kind, SESSION)]),
        "form": form,
        "lag_ms": draw.choice([0, 0, 5 * MINUTE, 1]),
        "agg_phase_strategy": draw.choice(["AUTO", "AUTO", "AUTO", "TWO_PHASE", "ONE_PHASE"]),
        "end_of_input": draw.choice(["flush", "flush", "none"]),
    }
    if draw.random() < 0.2:
        options["checkpoints_before"] = sorted(draw.sample(range(count), 3))
    if idle:
        options["idleness_ms"] = draw.choice([500, 1000])
    if ticking:
        options |= periodic(200, rows[-1][2] - START + draw.choice([0, 300, 3000]))
    return case(name, "random", rows, **options)


def all_cases() -> list[dict[str, Any]]:
    """Every case, in the order of the groups above."""
    groups = (of_phases, of_watermarks, of_idleness, of_zones, of_emission, of_chance)
    return [one for group in groups for one in group()]
