"""From a case to the job that the recorder runs: its table, its query, its settings, and the order of its steps."""

from __future__ import annotations

from typing import Any


def interval(ms: int) -> str:
    """An interval literal of Flink SQL."""
    seconds, rest = divmod(abs(ms), 1000)
    days, seconds = divmod(seconds, 86_400)
    time = f"{days} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:03d}"
    return f"INTERVAL '{'-' if ms < 0 else ''}{time}' DAY TO SECOND(3)"


def job_of(case: dict[str, Any]) -> dict[str, Any]:
    """The job of a case, as `Job.java` reads it."""
    config = case["config"]
    timer = config["emission"]["interval_ms"]
    return {
        "name": case["name"],
        "settings": settings_of(config),
        "table": table_of(config),
        "query": query_of(config),
        "subtasks": config["subtasks"],
        "clock_start": config["clock"]["start_ms"],
        "interval": timer,
        "assigner_interval": config.get("assigner_interval_ms", timer),
        "records": case["records"],
        "steps": steps_of(case),
        "flush": config["end_of_input"] == "flush",
    }


def settings_of(config: dict[str, Any]) -> dict[str, str]:
    """The SETs of the script."""
    settings = {
        "table.local-time-zone": config["time_zone"],
        "table.optimizer.agg-phase-strategy": config["agg_phase_strategy"],
        **config.get("settings", {}),
    }
    idleness = config["watermark"].get("idleness_ms")
    return {**settings, "table.exec.source.idle-timeout": f"{idleness} ms"} if idleness else settings


def table_of(config: dict[str, Any]) -> str:
    """`CREATE TABLE events`."""
    options = {"connector": "script" if config["watermark_push_down"] else "script-behind"}
    if config["watermark_push_down"]:
        on_event = config["emission"]["mode"] == "per_event"
        options["scan.watermark.emit.strategy"] = "on-event" if on_event else "on-periodic"
    delay = interval(config["watermark"]["lag_ms"])
    written = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return (
        f"CREATE TABLE events (k STRING, ts {config['time']}(3), v BIGINT, mark BIGINT, "
        f"WATERMARK FOR ts AS ts - {delay}) WITH ({written})"
    )


def query_of(config: dict[str, Any]) -> str:
    """The windowed query: key, bounds, count, sum, and the records that are in the row as bits of `mark`."""
    values = "COUNT(*), SUM(v), SUM(mark)"
    if config["form"] == "group_by":
        call = _group_window(config["window"])
        name, arguments = call.split("(", 1)
        bounds = ", ".join(f"{name}_{bound}({arguments}" for bound in ("START", "END"))
        return f"SELECT k, {bounds}, {values} FROM events GROUP BY k, {call}"
    table = f"TABLE({_table_function(config['window'])})"
    return f"SELECT k, window_start, window_end, {values} FROM {table} GROUP BY k, window_start, window_end"


def _group_window(window: dict[str, Any]) -> str:
    match window["kind"]:
        case "tumbling":
            return f"TUMBLE(ts, {interval(window['size_ms'])})"
        case "sliding":
            return f"HOP(ts, {interval(window['slide_ms'])}, {interval(window['size_ms'])})"
        case _:
            return f"SESSION(ts, {interval(window['gap_ms'])})"


def _table_function(window: dict[str, Any]) -> str:
    shift = f", {interval(window['offset_ms'])}" if window.get("offset_ms") else ""
    time = "TABLE events, DESCRIPTOR(ts)"
    match window["kind"]:
        case "tumbling":
            return f"TUMBLE({time}, {interval(window['size_ms'])}{shift})"
        case "sliding":
            return f"HOP({time}, {interval(window['slide_ms'])}, {interval(window['size_ms'])}{shift})"
        case "cumulative":
            return f"CUMULATE({time}, {interval(window['step_ms'])}, {interval(window['size_ms'])}{shift})"
        case _:
            return f"SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), {interval(window['gap_ms'])})"


def steps_of(case: dict[str, Any]) -> list[list[Any]]:
    """Ticks, records and checkpoints in their order. A tick that is due at an arrival comes before the record."""
    config = case["config"]
    timer, start = config["emission"]["interval_ms"], config["clock"]["start_ms"]
    checkpoints = config.get("checkpoints_before", [])
    steps: list[list[Any]] = []
    tick = start + timer

    def ticks_until(time: int) -> None:
        nonlocal tick
        while timer and tick <= time:
            steps.append(["tick", tick])
            tick += timer

    for index, record in enumerate(case["records"]):
        ticks_until(record[2])
        steps += [["checkpoint"]] * checkpoints.count(index)
        steps.append(["record", index])
    ticks_until(config["clock"].get("end_ms", 0))
    return steps + [["checkpoint"]] * checkpoints.count(len(case["records"]))
