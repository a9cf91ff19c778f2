"""Hypothesis strategies: random cases in the golden format, over every generator and window of the project.

`cases()` yields a whole case without `expected` (give it to `naive.simulate`); `configs()` only its `config`;
`records_for(config)` its rows. Times are milliseconds. Everything is small, so that a Spark run stays quick.
Two things are never made, because the rules leave them open: a record without timestamp for a generator whose
recordings have none (only `GENERATORS_OF_FLINK` see them, and only if asked), and `advance_after_wait` per event.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.golden.naive import MAX

GENERATORS_OF_FLINK = ("monotonous", "bounded_out_of_orderness", "punctuated", "none", "advance_after_wait")
GENERATORS = (*GENERATORS_OF_FLINK, "lag", "average_of_last", "time_lag", "interleaved", "custom")
WINDOWS = ("tumbling", "sliding", "cumulative", "session")
STREAMS = ("x", "y", "z")
RECORD_COLUMNS = ["partition", "offset", "arrival_ms", "key", "ts_ms", "value", "marker(optional)"]
PROCESSING_EPOCH = 1_700_000_000_000
CUSTOM = "tests.golden.custom_generators:"


def windows(kinds: tuple[str, ...] = WINDOWS) -> st.SearchStrategy[dict[str, Any]]:
    """A `window`: a handful of windows a record; slide may be above the size, the size no multiple of the slide."""
    return st.sampled_from(kinds).flatmap(lambda kind: _WINDOWS[kind])


_offsets = st.sampled_from([0, 0, 0, 1, 30, 137, -45, -250])
_WINDOWS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "tumbling": st.fixed_dictionaries(
        {"kind": st.just("tumbling"), "size_ms": st.sampled_from([1, 50, 100, 333, 1000]), "offset_ms": _offsets}
    ),
    "sliding": st.fixed_dictionaries(
        {"kind": st.just("sliding"), "size_ms": st.sampled_from([100, 200, 250, 500]), "offset_ms": _offsets}
    ).flatmap(
        lambda window: st.sampled_from([window["size_ms"] // 4, 70, 100, 150, 300, 600]).map(
            lambda slide: {**window, "slide_ms": slide}
        )
    ),
    "cumulative": st.fixed_dictionaries(
        {"kind": st.just("cumulative"), "step_ms": st.sampled_from([50, 120, 300]), "offset_ms": _offsets}
    ).flatmap(
        lambda window: st.integers(1, 5).map(lambda steps: {**window, "size_ms": window["step_ms"] * steps}),
    ),
    "session": st.fixed_dictionaries({"kind": st.just("session"), "gap_ms": st.sampled_from([2, 40, 100, 300, 700])}),
}


def watermarks(kinds: tuple[str, ...] = GENERATORS) -> st.SearchStrategy[dict[str, Any]]:
    """A `watermark` without idleness."""
    weighted = [kind for kind in kinds for _ in range(1 if kind == "none" else 4)]
    return st.sampled_from(weighted).flatmap(lambda kind: _WATERMARKS[kind])


_bounds = st.sampled_from([0, 0, 1, 60, 200, 1500])
_lags = st.sampled_from([0, 1, 100, 350, -40])
_WATERMARKS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "monotonous": st.just({"kind": "monotonous"}),
    "none": st.just({"kind": "none"}),
    "bounded_out_of_orderness": st.fixed_dictionaries(
        {"kind": st.just("bounded_out_of_orderness"), "bound_ms": _bounds}
    ),
    "punctuated": st.fixed_dictionaries({"kind": st.just("punctuated"), "marker_lag_ms": _lags}),
    "advance_after_wait": st.fixed_dictionaries(
        {"kind": st.just("advance_after_wait"), "bound_ms": _bounds, "wait_ms": st.sampled_from([0, 100, 250, 1000])}
    ),
    "lag": st.fixed_dictionaries({"kind": st.just("lag"), "lag_ms": _lags}),
    "average_of_last": st.fixed_dictionaries(
        {"kind": st.just("average_of_last"), "n": st.integers(1, 5), "lag_ms": _lags}
    ),
    "time_lag": st.fixed_dictionaries({"kind": st.just("time_lag"), "lag_ms": st.sampled_from([0, 50, 300, 900])}),
    "interleaved": st.fixed_dictionaries(
        {"kind": st.just("interleaved"), "bound_ms": _bounds},
        optional={"streams": st.sampled_from([["x"], ["x", "y"], ["z", "x", "y"]])},
    ),
    "custom": st.sampled_from(
        [
            ("HandWrittenBound", {"bound_ms": 80, "on": "event"}),
            ("HandWrittenBound", {"bound_ms": 0, "on": "tick"}),
            ("LowestOfLast", {"count": 3}),
            ("EveryNth", {"n": 3, "lag_ms": 60}),
            ("DriftingClock", {"lag_ms": 150}),
            ("DriftingClock", {}),
        ]
    ).map(lambda named: {"kind": "custom", "class": CUSTOM + named[0], "parameters": named[1]}),
}


@st.composite
def configs(
    draw: st.DrawFn,
    *,
    generators: tuple[str, ...] = GENERATORS,
    window_kinds: tuple[str, ...] = WINDOWS,
    max_partitions: int = 4,
    subtasks: bool = True,
    scopes: tuple[str, ...] = ("partition", "partition", "partition", "subtask"),
    modes: tuple[str, ...] = ("per_event", "periodic"),
    idleness: bool = True,
    forever: bool = True,
    sessions_forever: bool = False,
    nulls: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A `config`. `nulls`: the policies for missing timestamps to draw from ("drop", "fail"); none: no such record.

    `idleness=False` also leaves out the timer that per-event emission only needs for it.
    """
    watermark = dict(draw(watermarks(generators)))
    window = draw(windows(window_kinds))
    kind = watermark["kind"]
    mode = draw(st.sampled_from(modes)) if kind != "advance_after_wait" else "periodic"
    timer = mode == "periodic" or (idleness and draw(st.booleans()))
    interval = draw(st.sampled_from([40, 100, 200])) if timer else 0
    if idleness and draw(st.booleans()):  # with interval 0 it is never noticed (rule 9)
        watermark["idleness_ms"] = draw(st.sampled_from([50, 150, 300]))
    partitions = draw(st.sampled_from([n for n in (1, 2, 2, 3, 3, 4) if n <= max_partitions]))
    step = window.get("step_ms") or window.get("slide_ms") or window.get("size_ms") or window["gap_ms"]
    latenesses = [0, 0, 1, step, step + 37, 2000]
    if forever and (window["kind"] != "session" or sessions_forever):
        latenesses.append(MAX)
    config: dict[str, Any] = {
        "partitions": partitions,
        "watermark": watermark,
        "emission": {"mode": mode, "interval_ms": interval},
        "window": window,
        "allowed_lateness_ms": draw(st.sampled_from(latenesses)),
        "end_of_input": draw(st.sampled_from(["flush", "none"])),
        "value_type": draw(st.sampled_from(["long", "double"])),
    }
    scope = draw(st.sampled_from(scopes))
    if scope != "partition":
        config["watermark_scope"] = scope
    if subtasks and partitions > 1 and draw(st.booleans()):
        placed = draw(st.permutations(range(partitions)))
        cut = draw(st.integers(1, partitions - 1))
        config["subtasks"] = [list(placed[:cut]), list(placed[cut:])]
        if len(config["subtasks"][1]) > 1 and draw(st.booleans()):
            config["subtasks"][1:] = [config["subtasks"][1][:1], config["subtasks"][1][1:]]
    if interval and draw(st.booleans()):
        start = PROCESSING_EPOCH + draw(st.integers(-2, 2)) * interval + draw(st.sampled_from([0, 0, 13]))
        config["clock"] = {"start_ms": start}
    usable = [p for p in nulls if p == "drop" or kind in GENERATORS_OF_FLINK]
    if usable and draw(st.booleans()):
        config["null_timestamp"] = draw(st.sampled_from(usable))
    return config


@st.composite
def records_for(
    draw: st.DrawFn, config: dict[str, Any], *, min_records: int = 1, max_records: int = 40
) -> list[list[Any]]:
    """Rows for a config, in arrival order: equal arrivals, pauses, equal, negative and far timestamps.

    Partitions that get no record stay registered. Timestamps go along a line that moves on between records, with a
    jitter to both sides; for `time_lag` the line is the processing time.
    """
    watermark = config["watermark"]
    kind = watermark["kind"]
    interval = config["emission"]["interval_ms"] or 100
    active = list(range(config["partitions"]))
    if draw(st.sampled_from([False] * 5 + [True])):
        active = draw(st.lists(st.sampled_from(active), min_size=1, unique=True))
    # The larger of two, since Hypothesis likes small numbers and few records show little.
    count = max(draw(st.integers(min_records, max_records)), draw(st.integers(min_records, max_records)))
    origin = PROCESSING_EPOCH if kind == "time_lag" else draw(st.sampled_from([0, 5_000, -700, -100_000]))
    keys = draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "", "é"]]))
    streams = watermark.get("streams", STREAMS)
    null_policy = config.get("null_timestamp")
    pauses = st.sampled_from([0, 0, 1, 7, 20, 45, interval, 4 * interval, 9 * interval])
    steps = st.sampled_from([0, 0, 0, 10, 25, 50, 130, 400])
    jitters = st.sampled_from([0, 0, 0, -1, 1, -10, 40, -60, -100, -250, -1100, 700])

    arrival = PROCESSING_EPOCH
    line = 0
    offsets = dict.fromkeys(active, 0)
    rows: list[list[Any]] = []
    for _ in range(count):
        partition = draw(st.sampled_from(active))
        offsets[partition] += draw(st.sampled_from([1, 1, 1, 2, 50]))
        arrival += draw(pauses)
        line += draw(steps)
        base = arrival if kind == "time_lag" else origin + line
        timestamp: int | None = base + draw(jitters)
        marked = kind == "punctuated" and draw(st.sampled_from([False, False, True]))
        if null_policy and not marked and draw(st.sampled_from([False] * 7 + [True])):
            timestamp = None
        value: float = draw(st.integers(-50, 50))
        if config["value_type"] == "double":
            value = value * 0.25
        row = [partition, offsets[partition], arrival, draw(st.sampled_from(keys)), timestamp, value]
        if kind == "interleaved":
            row += [0, draw(st.sampled_from(streams))]
        elif marked:
            row.append(1)
        rows.append(row)
    return rows


@st.composite
def cases(draw: st.DrawFn, *, min_records: int = 1, max_records: int = 40, **options: Any) -> dict[str, Any]:
    """A whole case but for `expected`; `options` are those of `configs`."""
    config = draw(configs(**options))
    records = draw(records_for(config, min_records=min_records, max_records=max_records))
    if config["emission"]["interval_ms"]:
        clock = config.setdefault("clock", {"start_ms": records[0][2]})
        clock["end_ms"] = records[-1][2] + draw(st.sampled_from([0, 1, 90, 700]))
    columns = [*RECORD_COLUMNS, "stream"] if config["watermark"]["kind"] == "interleaved" else RECORD_COLUMNS
    return {
        "format": "flink-oracle-case/1",
        "name": "generated",
        "covers": [],
        "note": "",
        "config": config,
        "record_columns": columns,
        "records": records,
    }
