"""Makes `generators/*.json`: cases for what the recordings in `flink/` do not cover, `expected` from `naive.py`.

    python -m tests.golden.make_generator_cases            writes the folder anew
    python -m tests.golden.make_generator_cases --check    exit code 1 if a file would change

The same input always gives the same bytes: the random cases have their seed in the file.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tests.golden import naive

FOLDER = Path(__file__).parent / "generators"
COLUMNS = ["partition", "offset", "arrival_ms", "key", "ts_ms", "value", "marker(optional)"]
EPOCH = 1_700_000_000_000
TUMBLING = {"kind": "tumbling", "size_ms": 1000, "offset_ms": 0}
CUSTOM = "tests.golden.custom_generators:"
OLDER_FLINK = "1.20.3"


def golden_case(
    name: str,
    note: str,
    covers: list[str],
    config: dict[str, Any],
    records: list[list[Any]],
    seed: str | None = None,
) -> dict[str, Any]:
    """A whole case; `expected_flink_1_20_3` only where that version gives something else."""
    interleaved = config["watermark"]["kind"] == "interleaved"
    case: dict[str, Any] = {
        "format": "flink-oracle-case/1",
        "name": name,
        "covers": covers,
        "note": note,
        **({"seed": seed} if seed else {}),
        "config": config,
        "record_columns": [*COLUMNS, "stream"] if interleaved else COLUMNS,
        "records": records,
    }
    case["expected"] = naive.simulate(case)
    older = naive.simulate(case, OLDER_FLINK)
    newer = case["expected"]["streaming"]
    if any(older["streaming"][part] != newer[part] for part in older["streaming"]):
        case["expected_flink_1_20_3"] = {"flink_version": OLDER_FLINK, "streaming": older["streaming"]}
    return case


def hand(
    name: str,
    note: str,
    watermark: dict[str, Any],
    rows: list[tuple[Any, ...]],
    *,
    window: dict[str, Any] = TUMBLING,
    lateness: int = 0,
    interval: int = 0,
    mode: str = "",
    partitions: int = 1,
    end: str = "none",
    until: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A hand-written case. A row is (partition, milliseconds after the start, key, timestamp, marker?, stream?).

    The mode is periodic when there is an interval, unless said. `until`: the timer runs on to this millisecond.
    Offsets count up within each partition, values from 10.
    """
    mode = mode or ("periodic" if interval else "per_event")
    config: dict[str, Any] = {
        "partitions": partitions,
        "watermark": watermark,
        "emission": {"mode": mode, "interval_ms": interval},
        "window": window,
        "allowed_lateness_ms": lateness,
        "end_of_input": end,
        "value_type": "long",
        **more,
    }
    if interval:
        config["clock"] = {"start_ms": EPOCH, "end_ms": EPOCH + (rows[-1][1] if until is None else until)}
    records = []
    for index, (partition, after, key, timestamp, *rest) in enumerate(rows):
        offset = sum(1 for row in rows[:index] if row[0] == partition)
        records.append([partition, offset, EPOCH + after, key, timestamp, 10 + index, *rest])
    covers = [watermark["kind"], mode, window["kind"]]
    if "idleness_ms" in watermark:
        covers.append("idleness")
    if "subtasks" in more:
        covers.append("several subtasks")
    return golden_case(name, note, covers, config, records)


def in_turn(timestamps: list[int], *, partition: int = 0, step: int = 1000, key: str = "a") -> list[tuple[Any, ...]]:
    """Rows of one partition, `step` ms apart."""
    return [(partition, index * step, key, timestamp) for index, timestamp in enumerate(timestamps)]


def lag_cases() -> list[dict[str, Any]]:
    return [
        hand(
            "gen_lag_published_table",
            "twelve events with lag 4 give the watermarks 3 7 7 11 11 11 13 13 17 20 20 20; 19 is behind the watermark",
            {"kind": "lag", "lag_ms": 4},
            in_turn([7, 11, 9, 15, 12, 13, 17, 14, 21, 24, 22, 19]),
            window={"kind": "tumbling", "size_ms": 5, "offset_ms": 0},
        ),
        hand(
            "gen_lag_closes_one_ms_earlier",
            "lag has no 1 ms: [0,5000) closes with 6999, whose watermark is 4999; bounded would wait for 7000",
            {"kind": "lag", "lag_ms": 2000},
            in_turn([1000, 4000, 6998, 4500, 6999, 4999, 7000, 12000]),
            window={"kind": "tumbling", "size_ms": 5000, "offset_ms": 0},
        ),
        hand(
            "gen_lag_closes_when_7_s_arrives",
            "5 s windows that close when 7 s arrives: end 5000 - 1 <= 7000 - 2000; 4 s after it is late",
            {"kind": "lag", "lag_ms": 2000},
            in_turn([1000, 3000, 5000, 4000, 7000, 4000, 9000, 12000]),
            window={"kind": "tumbling", "size_ms": 5000, "offset_ms": 0},
            end="flush",
        ),
        hand(
            "gen_lag_periodic_two_partitions_sliding_lateness",
            "lag at ticks, minimum over two partitions; lateness 130 is no multiple of the slide",
            {"kind": "lag", "lag_ms": 300},
            [
                (0, 10, "a", 1000),
                (1, 20, "a", 700),
                (0, 110, "b", 2100),
                (1, 120, "a", 1900),
                (1, 130, "a", 1250),
                (0, 200, "a", 1100),
                (1, 310, "b", 3000),
                (0, 320, "a", 2990),
                (0, 450, "a", 1900),
                (1, 460, "a", 2400),
                (0, 470, "b", 2480),
            ],
            window={"kind": "sliding", "size_ms": 1000, "slide_ms": 400, "offset_ms": 50},
            lateness=130,
            interval=100,
            partitions=2,
            until=700,
        ),
    ]


def average_cases() -> list[dict[str, Any]]:
    average = {"kind": "average_of_last", "n": 4, "lag_ms": 500}
    return [
        hand(
            "gen_average_of_last_outlier",
            "6000 is one of four timestamps: their mean is 2625, so the watermark goes to 2125, not to 5500; "
            "at the start fewer are averaged",
            average,
            in_turn([1000, 2000, 1500, 6000, 2500, 3000, 3200, 1900, 3500, 4000, 4500, 3100, 5000, 5200]),
            end="flush",
        ),
        hand(
            "gen_average_of_last_falls_and_floors",
            "the mean of -3 and -4 is floored to -4; when the mean falls the watermark stays",
            {"kind": "average_of_last", "n": 2, "lag_ms": 0},
            in_turn([-3, -4, -2, 9, -20, -30, 10, 11]),
            window={"kind": "tumbling", "size_ms": 5, "offset_ms": 0},
        ),
        hand(
            "gen_average_of_last_subtask_scope",
            "one generator over both partitions averages them together",
            average,
            [(i % 2, i * 1000, "a", 1000 + 700 * i - (i % 2) * 900) for i in range(10)],
            partitions=2,
            watermark_scope="subtask",
            lateness=250,
        ),
        hand(
            "gen_average_of_last_idle_partition_resumes",
            "partition 1 goes idle and comes back with 9000: its generator still has the old 1000, the mean is 5000, "
            "so it is behind and holds the watermark",
            {"kind": "average_of_last", "n": 3, "lag_ms": 0, "idleness_ms": 300},
            [
                (0, 10, "a", 1000),
                (1, 20, "a", 1000),
                (0, 320, "a", 3000),
                (0, 520, "a", 5000),
                (0, 720, "a", 6000),
                (1, 780, "a", 9000),
                (0, 820, "a", 7000),
                (0, 920, "a", 9000),
                (1, 980, "a", 9500),
                (0, 1020, "a", 12000),
                (1, 1030, "a", 12000),
                (1, 1040, "a", 12100),
            ],
            interval=100,
            partitions=2,
            until=1300,
        ),
    ]


def time_lag_cases() -> list[dict[str, Any]]:
    def at(after: int, timestamp_after: int, partition: int = 0, key: str = "a") -> tuple[Any, ...]:
        return (partition, after, key, EPOCH + timestamp_after)

    return [
        hand(
            "gen_time_lag_per_event",
            "the watermark is arrival - 400 after each record, whatever its timestamp; a far future one moves nothing",
            {"kind": "time_lag", "lag_ms": 400},
            [
                at(0, -100),
                at(900, 50000),
                at(1400, 999),
                at(1900, 990),
                at(2300, 1200),
                at(2400, 1999),
                at(2500, 1900),
                at(2900, 2600),
                at(2950, 1500),
            ],
            lateness=200,
        ),
        hand(
            "gen_time_lag_periodic_empty_partition",
            "at each tick t every partition says t - 400, also the one without records: the watermark runs by itself",
            {"kind": "time_lag", "lag_ms": 400},
            [at(50, 10), at(250, 200), at(900, 650), at(2500, 2050), at(2501, 2101)],
            interval=100,
            partitions=2,
            until=3700,
        ),
        hand(
            "gen_time_lag_per_event_empty_partition",
            "per event the partition without records never speaks and holds the watermark at none",
            {"kind": "time_lag", "lag_ms": 400},
            [at(50, 10), at(250, 200), at(900, 650), at(2500, 2050), at(2501, 2101)],
            partitions=2,
            end="flush",
        ),
        hand(
            "gen_time_lag_periodic_all_idle",
            "the tick of an idle partition does not reach its generator: with all idle the watermark stands still",
            {"kind": "time_lag", "lag_ms": 100, "idleness_ms": 250},
            [at(50, 10), at(60, 40, 1), at(450, 400), at(1950, 1900), at(1960, 1100), at(2050, 1850, 1)],
            interval=100,
            partitions=2,
            until=2200,
            end="flush",
        ),
    ]


def interleaved_cases() -> list[dict[str, Any]]:
    def row(after: int, stream: str, timestamp: int, partition: int = 0, key: str = "a") -> tuple[Any, ...]:
        return (partition, after, key, timestamp, 0, stream)

    mixed = [
        row(0, "x", 1000),
        row(1000, "x", 3500),
        row(2000, "y", 1200),
        row(3000, "y", 2600),
        row(4000, "x", 5200),
        row(5000, "y", 4100, key="b"),
        row(6000, "x", 3050),
        row(7000, "z", 3300),
        row(8000, "y", 7000),
        row(9000, "x", 7200),
        row(10000, "z", 6500),
        row(11000, "x", 2000),
    ]
    return [
        hand(
            "gen_interleaved_seen",
            "without a list a stream counts from its first record on: y comes in behind, the watermark does not go "
            "back but waits for it; so again with z",
            {"kind": "interleaved", "bound_ms": 100},
            mixed,
        ),
        hand(
            "gen_interleaved_listed",
            "the same records with the list x, y, z: no watermark until all three were seen, so nothing is late before",
            {"kind": "interleaved", "bound_ms": 100, "streams": ["x", "y", "z"]},
            mixed,
        ),
        hand(
            "gen_interleaved_unlisted_stream",
            "the same records with the list x, y: z has no influence on the watermark, its records are windowed as all",
            {"kind": "interleaved", "bound_ms": 100, "streams": ["x", "y"]},
            mixed,
            end="flush",
        ),
        hand(
            "gen_interleaved_per_partition",
            "each partition has its own streams: x in partition 1 says nothing about x in partition 0",
            {"kind": "interleaved", "bound_ms": 0},
            [
                row(0, "x", 1000),
                row(10, "x", 4000, 1),
                row(20, "y", 2000),
                row(30, "x", 6000, 1),
                row(40, "x", 3000),
                row(50, "y", 3900),
                row(60, "y", 900, 1),
                row(70, "x", 8000),
                row(80, "y", 8000),
                row(90, "y", 8000, 1),
                row(100, "x", 1500, 1),
            ],
            window={"kind": "session", "gap_ms": 700},
            partitions=2,
            lateness=300,
        ),
        hand(
            "gen_interleaved_subtask_scope_periodic",
            "one generator over both partitions: the streams of both count as the same; at ticks",
            {"kind": "interleaved", "bound_ms": 0, "streams": ["x", "y"]},
            [row(20 * i, "xyy"[i % 3], 400 * i - 500 * (i % 4), i % 2, "ab"[i % 2]) for i in range(16)],
            window={"kind": "cumulative", "size_ms": 2000, "step_ms": 500, "offset_ms": 250},
            interval=50,
            partitions=2,
            watermark_scope="subtask",
            until=400,
        ),
        hand(
            "gen_interleaved_listed_idle",
            "partition 1 comes back from idleness with x only: without y its generator says nothing, so it stays idle "
            "and partition 0 goes on; with y it is back and holds",
            {"kind": "interleaved", "bound_ms": 0, "streams": ["x", "y"], "idleness_ms": 200},
            [
                row(10, "x", 1000),
                row(20, "y", 1500),
                row(310, "x", 3000),
                row(330, "y", 3100),
                row(510, "x", 5000, 1),
                row(520, "x", 4500),
                row(530, "y", 4600),
                row(610, "y", 4650, 1),
                row(620, "x", 9000),
                row(630, "y", 9000),
                row(710, "y", 8000, 1),
            ],
            interval=100,
            partitions=2,
            until=800,
        ),
    ]


def custom_cases() -> list[dict[str, Any]]:
    def custom(name: str, idleness: int | None = None, **parameters: Any) -> dict[str, Any]:
        idle = {} if idleness is None else {"idleness_ms": idleness}
        return {"kind": "custom", "class": CUSTOM + name, "parameters": parameters, **idle}

    quiet_then_back = [
        (0, 10, "a", 1000),
        (1, 20, "a", 900),
        (0, 150, "a", 2200),
        (1, 160, "b", 2100),
        (0, 700, "a", 2600),
        (0, 710, "a", 3400),
        (1, 1500, "a", 2700),
        (1, 1510, "a", 4100),
        (0, 1620, "b", 4800),
    ]
    return [
        hand(
            "gen_custom_hand_written_bound",
            "a class that does what bounded_out_of_orderness does",
            custom("HandWrittenBound", bound_ms=500, on="event"),
            in_turn([1000, 2000, 1400, 2600, 900, 4000, 3300, 2499, 6000]),
            end="flush",
        ),
        hand(
            "gen_custom_goes_back",
            "the class emits lower watermarks after higher ones: they change nothing",
            custom("LowestOfLast", count=3),
            in_turn([1000, 2000, 3000, 4000, 100, 5000, 6000, 7000, 3999, 8000, 9000, 10000]),
            lateness=1000,
        ),
        hand(
            "gen_custom_two_watermarks_on_one_event",
            "two watermarks on one record, the higher one last: windows fire in two steps after the same record",
            custom("EveryNth", n=3, lag_ms=1000),
            in_turn([1000, 2000, 4000, 3000, 100, 7000, 6100, 4999, 9000]),
        ),
        hand(
            "gen_custom_per_event_with_timer",
            "per event with a timer: the class is asked after each record AND at each tick, and speaks at both",
            custom("DriftingClock", lag_ms=200),
            quiet_then_back,
            mode="per_event",
            interval=100,
            partitions=2,
            until=2100,
        ),
        hand(
            "gen_custom_periodic",
            "periodic: exactly the same as per event with a timer, a class speaks when it wants to",
            custom("DriftingClock", lag_ms=200),
            quiet_then_back,
            mode="periodic",
            interval=100,
            partitions=2,
            until=2100,
        ),
        hand(
            "gen_custom_idle",
            "an idle partition's ticks do not reach the class: its clock stops speaking, and when all are idle the "
            "watermark takes the maximum and stands",
            custom("DriftingClock", idleness=250, lag_ms=200),
            quiet_then_back,
            interval=100,
            partitions=2,
            until=2400,
            end="flush",
        ),
    ]


def subtask_cases() -> list[dict[str, Any]]:
    bounded = {"kind": "bounded_out_of_orderness", "bound_ms": 0}
    idling = {**bounded, "idleness_ms": 300}
    return [
        hand(
            "gen_two_subtasks_flush",
            "the subtasks end together: the open windows fire once, at the end of input (rule 23)",
            bounded,
            [(0, 0, "a", 1000), (1, 10, "a", 9000), (0, 20, "b", 5000), (1, 30, "a", 8000)],
            partitions=2,
            subtasks=[[0], [1]],
            end="flush",
        ),
        hand(
            "gen_two_subtasks_flush_one_idle",
            "subtask 1 is idle at the end: its end of input is dropped, the one of subtask 0 is enough",
            idling,
            [
                (0, 10, "a", 1000),
                (1, 20, "a", 7000),
                (0, 350, "a", 2000),
                (0, 650, "a", 3000),
                (0, 900, "b", 3500),
            ],
            interval=100,
            partitions=2,
            subtasks=[[0], [1]],
            until=1000,
            end="flush",
        ),
        hand(
            "gen_three_subtasks_idle_and_back",
            "subtask 1 (two partitions) goes idle, the valve goes on with the others; it comes back behind and is "
            "ignored until it has caught up, while subtask 2 holds the minimum",
            idling,
            [
                (0, 10, "a", 1000),
                (1, 20, "a", 900),
                (2, 30, "a", 1100),
                (3, 40, "b", 1200),
                *[(p, t + p, "ab"[p % 2], 1000 + 5 * t - 100 * p) for t in range(150, 800, 100) for p in (0, 3)],
                *[
                    (p, t + p, "ab"[p % 2], 1000 + 5 * t - 100 * p - (1500 if p in (1, 2) and t < 1100 else 0))
                    for t in range(850, 1300, 100)
                    for p in (0, 1, 2, 3)
                ],
            ],
            window={"kind": "tumbling", "size_ms": 500, "offset_ms": 100},
            lateness=300,
            interval=100,
            partitions=4,
            subtasks=[[0], [1, 2], [3]],
            until=1500,
        ),
        hand(
            "gen_three_subtasks_last_to_idle_is_behind",
            "subtask 0 goes idle at 8999, subtask 2 holds 3000; subtask 1 comes back behind it (2599) and is the last "
            "to go idle: it does not hold the watermark, so the maximum 8999 is not flushed",
            idling,
            [
                (0, 10, "a", 9000),
                (2, 20, "a", 3001),
                (1, 30, "a", 2000),
                *[(2, t, "b", 3000) for t in range(150, 751, 200)],
                (1, 760, "a", 2600),
                (2, 950, "b", 3000),
                (1, 1050, "a", 2400),
                (1, 1250, "a", 2500),
                (1, 1255, "a", 2600),
            ],
            window={"kind": "tumbling", "size_ms": 500, "offset_ms": 0},
            interval=100,
            partitions=3,
            subtasks=[[0], [1], [2]],
            until=2000,
        ),
        hand(
            "gen_subtask_scope_idle_two_subtasks",
            "one generator per subtask: a record of any of its partitions is activity for all of them",
            idling,
            [
                (0, 10, "a", 1000),
                (2, 20, "a", 1500),
                (1, 250, "a", 2500),
                (0, 450, "b", 4000),
                (1, 650, "a", 3900),
                (0, 850, "a", 6000),
                (2, 1050, "a", 5000),
                (2, 1150, "b", 7500),
                (1, 1160, "a", 8000),
            ],
            interval=100,
            partitions=3,
            subtasks=[[0, 1], [2]],
            watermark_scope="subtask",
            until=1800,
            end="flush",
        ),
        hand(
            "gen_per_event_all_idle_resume_behind",
            "both idle: the older rules keep the minimum 2999. A record of partition 1 behind its own watermark makes "
            "it active without a combined update: that waits for the next tick",
            idling,
            [
                (0, 10, "a", 3000),
                (1, 20, "a", 9000),
                (1, 850, "a", 8500),
                (1, 860, "b", 8600),
                (0, 930, "a", 8900),
                (1, 960, "a", 9400),
            ],
            mode="per_event",
            interval=100,
            partitions=2,
            until=1200,
        ),
        hand(
            "gen_lag_two_subtasks_idle_session",
            "lag, sessions and lateness over two subtasks of which one pauses",
            {"kind": "lag", "lag_ms": 50, "idleness_ms": 150},
            [
                *[(0, 10 + 40 * i, "ab"[i % 2], 1000 + 130 * i) for i in range(12)],
                (1, 500, "a", 1900),
                (2, 505, "b", 2100),
                *[(p, 510 + 40 * i + p, "ab"[i % 2], 2300 + 140 * i - 90 * p) for i in range(8) for p in (0, 1, 2)],
            ],
            window={"kind": "session", "gap_ms": 200},
            lateness=150,
            interval=50,
            partitions=3,
            subtasks=[[0], [2, 1]],
            until=1300,
        ),
    ]


def window_cases() -> list[dict[str, Any]]:
    punctuated = {"kind": "punctuated", "marker_lag_ms": 0}
    return [
        hand(
            "gen_session_lateness_forever_without_merge",
            "lateness for ever with sessions: a record that leaves the session as it is does not merge, so it does "
            "not fail the job after a watermark; the record 300 extends it, and fails",
            punctuated,
            [
                (0, 0, "a", 0),
                (0, 10, "a", 500),
                (0, 20, "m", 2000, 1),
                (0, 30, "a", 200),
                (0, 40, "b", 100),
                (0, 50, "b", 100),
                (0, 60, "b", 300),
            ],
            window={"kind": "session", "gap_ms": 1000},
            lateness=naive.MAX,
        ),
        hand(
            "gen_sliding_gap_lateness_forever",
            "slide > size, lateness for ever: timestamp + lateness overflows for a positive timestamp, so a record in "
            "no window is late as soon as there is a watermark; for a negative one it vanishes without trace",
            punctuated,
            [
                (0, 0, "a", 700),
                (0, 10, "m", 2000, 1),
                (0, 20, "a", 1700),
                (0, 30, "a", -300),
                (0, 40, "a", 100),
                (0, 50, "a", 3600),
            ],
            window={"kind": "sliding", "size_ms": 500, "slide_ms": 1000, "offset_ms": 0},
            lateness=naive.MAX,
        ),
    ]


MINUTE = 60_000
RANDOM: list[tuple[str, dict[str, Any], int]] = [
    (
        "tumbling_lag_perevent_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "lag", "lag_ms": 20_000},
            "window": {"kind": "tumbling", "size_ms": MINUTE, "offset_ms": 6_000},
            "allowed_lateness_ms": 0,
            "end_of_input": "none",
        },
        400,
    ),
    (
        "session_lag_periodic_3p_2sub",
        {
            "partitions": 3,
            "subtasks": [[0, 2], [1]],
            "watermark": {"kind": "lag", "lag_ms": 5_000},
            "emission": {"mode": "periodic", "interval_ms": 2_000},
            "window": {"kind": "session", "gap_ms": 9_000},
            "allowed_lateness_ms": 7_000,
            "end_of_input": "flush",
        },
        300,
    ),
    (
        "sliding_lag_idle_perevent_3p",
        {
            "partitions": 3,
            "watermark": {"kind": "lag", "lag_ms": 0, "idleness_ms": 9_000},
            "emission": {"mode": "per_event", "interval_ms": 3_000},
            "window": {"kind": "sliding", "size_ms": MINUTE, "slide_ms": 25_000, "offset_ms": 0},
            "allowed_lateness_ms": 11_000,
            "end_of_input": "none",
        },
        300,
    ),
    (
        "tumbling_average_perevent_1p",
        {
            "partitions": 1,
            "watermark": {"kind": "average_of_last", "n": 10, "lag_ms": 0},
            "window": {"kind": "tumbling", "size_ms": MINUTE, "offset_ms": 0},
            "allowed_lateness_ms": 45_000,
            "end_of_input": "flush",
        },
        500,
    ),
    (
        "cumulative_average_idle_periodic_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "average_of_last", "n": 25, "lag_ms": 10_000, "idleness_ms": 8_000},
            "emission": {"mode": "periodic", "interval_ms": 2_500},
            "window": {"kind": "cumulative", "size_ms": 2 * MINUTE, "step_ms": 40_000, "offset_ms": 0},
            "allowed_lateness_ms": 30_000,
            "end_of_input": "flush",
        },
        250,
    ),
    (
        "session_average_subscope_2p",
        {
            "partitions": 2,
            "watermark_scope": "subtask",
            "watermark": {"kind": "average_of_last", "n": 5, "lag_ms": 4_000},
            "window": {"kind": "session", "gap_ms": 6_000},
            "allowed_lateness_ms": 0,
            "end_of_input": "none",
        },
        300,
    ),
    (
        "tumbling_timelag_perevent_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "time_lag", "lag_ms": 30_000},
            "window": {"kind": "tumbling", "size_ms": MINUTE, "offset_ms": 0},
            "allowed_lateness_ms": 20_000,
            "end_of_input": "flush",
        },
        400,
    ),
    (
        "sliding_timelag_idle_periodic_3p_2sub",
        {
            "partitions": 3,
            "subtasks": [[1], [0, 2]],
            "watermark": {"kind": "time_lag", "lag_ms": 12_000, "idleness_ms": 6_000},
            "emission": {"mode": "periodic", "interval_ms": 1_500},
            "window": {"kind": "sliding", "size_ms": MINUTE, "slide_ms": 20_000, "offset_ms": -7_000},
            "allowed_lateness_ms": 0,
            "end_of_input": "none",
        },
        250,
    ),
    (
        "session_timelag_periodic_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "time_lag", "lag_ms": 15_000},
            "emission": {"mode": "periodic", "interval_ms": 5_000},
            "window": {"kind": "session", "gap_ms": 8_000},
            "allowed_lateness_ms": 10_000,
            "end_of_input": "flush",
        },
        300,
    ),
    (
        "tumbling_interleaved_perevent_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "interleaved", "bound_ms": 3_000},
            "window": {"kind": "tumbling", "size_ms": MINUTE, "offset_ms": 0},
            "allowed_lateness_ms": 0,
            "end_of_input": "flush",
        },
        400,
    ),
    (
        "session_interleaved_listed_periodic_2p",
        {
            "partitions": 2,
            "watermark": {"kind": "interleaved", "bound_ms": 0, "streams": ["x", "y", "z"]},
            "emission": {"mode": "periodic", "interval_ms": 4_000},
            "window": {"kind": "session", "gap_ms": 10_000},
            "allowed_lateness_ms": 12_000,
            "end_of_input": "none",
        },
        300,
    ),
    (
        "cumulative_interleaved_idle_perevent_3p_2sub",
        {
            "partitions": 3,
            "subtasks": [[0], [1, 2]],
            "watermark": {"kind": "interleaved", "bound_ms": 1_000, "idleness_ms": 7_000},
            "emission": {"mode": "per_event", "interval_ms": 2_000},
            "window": {"kind": "cumulative", "size_ms": MINUTE, "step_ms": 15_000, "offset_ms": 5_000},
            "allowed_lateness_ms": 8_000,
            "end_of_input": "flush",
        },
        250,
    ),
    (
        "tumbling_custom_perevent_2p_lateness_forever",
        {
            "partitions": 2,
            "watermark": {
                "kind": "custom",
                "class": CUSTOM + "EveryNth",
                "parameters": {"n": 7, "lag_ms": 6_000},
            },
            "window": {"kind": "tumbling", "size_ms": MINUTE, "offset_ms": 0},
            "allowed_lateness_ms": naive.MAX,
            "end_of_input": "none",
        },
        200,
    ),
    (
        "session_custom_idle_periodic_3p",
        {
            "partitions": 3,
            "watermark": {
                "kind": "custom",
                "class": CUSTOM + "DriftingClock",
                "parameters": {"lag_ms": 20_000},
                "idleness_ms": 10_000,
            },
            "emission": {"mode": "periodic", "interval_ms": 3_000},
            "window": {"kind": "session", "gap_ms": 7_000},
            "allowed_lateness_ms": 5_000,
            "end_of_input": "none",
        },
        300,
    ),
    (
        "tumbling_bounded_idle_periodic_5p_3sub",
        {
            "partitions": 5,
            "subtasks": [[0, 1], [2], [3, 4]],
            "watermark": {"kind": "bounded_out_of_orderness", "bound_ms": 4_000, "idleness_ms": 5_000},
            "emission": {"mode": "periodic", "interval_ms": 1_000},
            "window": {"kind": "tumbling", "size_ms": 30_000, "offset_ms": 0},
            "allowed_lateness_ms": 9_000,
            "end_of_input": "flush",
        },
        500,
    ),
    (
        "session_punctuated_idle_perevent_4p_2sub",
        {
            "partitions": 4,
            "subtasks": [[3, 0], [1, 2]],
            "watermark": {"kind": "punctuated", "marker_lag_ms": 2_000, "idleness_ms": 6_000},
            "emission": {"mode": "per_event", "interval_ms": 1_500},
            "window": {"kind": "session", "gap_ms": 12_000},
            "allowed_lateness_ms": 4_000,
            "end_of_input": "none",
        },
        400,
    ),
    (
        "sliding_monotonous_idle_subscope_4p_3sub",
        {
            "partitions": 4,
            "subtasks": [[0], [1, 3], [2]],
            "watermark_scope": "subtask",
            "watermark": {"kind": "monotonous", "idleness_ms": 4_000},
            "emission": {"mode": "periodic", "interval_ms": 1_000},
            "window": {"kind": "sliding", "size_ms": 40_000, "slide_ms": 25_000, "offset_ms": 1_000},
            "allowed_lateness_ms": 20_000,
            "end_of_input": "flush",
        },
        300,
    ),
]


def random_records(rng: random.Random, config: dict[str, Any], count: int) -> list[list[Any]]:
    """Rows in arrival order. The partitions take turns in spells, so that some of them fall silent for a while."""
    kind = config["watermark"]["kind"]
    partitions = list(range(config["partitions"]))
    arrival = EPOCH + rng.randrange(10_000)
    shift = 0 if kind == "time_lag" else rng.choice([0, -EPOCH, -EPOCH - 3_000_000])
    skews = [rng.randrange(0, 8_000) for _ in partitions]
    offsets = [rng.randrange(100) for _ in partitions]
    rows: list[list[Any]] = []
    talking = partitions
    for _ in range(count):
        if rng.random() < 0.04:
            talking = rng.sample(partitions, rng.randint(1, len(partitions)))
        if rng.random() < 0.02:
            arrival += rng.randrange(5_000, 40_000)
        arrival += rng.choice([0, 0, 1, 50, 400, 900, 2_500])
        partition = rng.choice(talking)
        offsets[partition] += rng.choice([1, 1, 1, 1, 2, 9])
        delay = rng.choice([0, 0, 500, 3_000, 9_000, rng.randrange(20_000), rng.randrange(120_000)])
        timestamp = arrival + shift - delay - skews[partition]
        key = "k" + str(min(int(rng.expovariate(0.6)), 6))
        value: Any = rng.randrange(-1_000, 100_000)
        row = [partition, offsets[partition], arrival, key, timestamp, value]
        if config["value_type"] == "double":
            row[5] = value * 0.25
        if kind == "interleaved":
            row += [0, rng.choice("xxxyyz")]
        elif kind == "punctuated" and rng.random() < 0.25:
            row.append(1)
        rows.append(row)
    return rows


def random_cases() -> list[dict[str, Any]]:
    cases = []
    for number, (label, spec, count) in enumerate(RANDOM, 1):
        seed = f"generators/{number}"
        rng = random.Random(seed)
        config = {
            "emission": {"mode": "per_event", "interval_ms": 0},
            "value_type": rng.choice(["long", "long", "double"]),
            "max_element_entries": 1_500,
            **spec,
        }
        records = random_records(rng, config, count)
        if config["emission"]["interval_ms"]:
            start = records[0][2] - rng.randrange(3_000)
            config["clock"] = {"start_ms": start, "end_ms": records[-1][2] + rng.randrange(20_000)}
        covers = [config["window"]["kind"], config["watermark"]["kind"], config["emission"]["mode"]]
        if "idleness_ms" in config["watermark"]:
            covers.append("idleness")
        if "subtasks" in config:
            covers.append("several subtasks")
        cases.append(golden_case(f"gen_r{number:02d}_{label}_n{count}", "", covers, config, records, seed))
    return cases


def all_cases() -> list[dict[str, Any]]:
    return [
        *lag_cases(),
        *average_cases(),
        *time_lag_cases(),
        *interleaved_cases(),
        *custom_cases(),
        *subtask_cases(),
        *window_cases(),
        *random_cases(),
    ]


def files() -> dict[str, str]:
    """Name and text of every file of the folder."""
    return {
        f"{case['name']}.json": json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n"
        for case in all_cases()
    }


def main() -> int:
    made = files()
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name in made.keys() | present.keys() if made.get(name) != present.get(name))
        for name in stale:
            print(f"{name}: not what make_generator_cases.py makes")
        return 1 if stale else 0
    for name in present.keys() - made.keys():
        (FOLDER / name).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} cases written to {FOLDER.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
