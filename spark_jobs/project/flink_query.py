"""A windowed query of a Flink SQL script as `keys`, `filter`, `window`, `allowed_lateness` and `aggregates`."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from spark_jobs.definition.names import RESERVED_COLUMNS
from spark_jobs.eventtime.durations import DAY, format_duration
from spark_jobs.project.flink_expressions import has_aggregate, translated
from spark_jobs.project.flink_parser import NOTHING, FlinkParser, SqlNode, is_same_sql
from spark_jobs.project.flink_relation import Relation, argument
from spark_jobs.project.flink_script import Located, NoCounterpartError, Query, Script
from spark_jobs.project.flink_source import EventTime, Lines
from spark_jobs.project.flink_zones import phases_of
from spark_jobs.project.yaml_text import scalar

EMIT = "table.exec.emit."
"""Begins the settings of early and late firing, which the older group windows obey."""
NO_WINDOW = "a definition replays windows"
_WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
_GROUP_WINDOWS = {"TUMBLE": "TUMBLE", "HOP": "HOP", "SESSION": "SESSION"}
_FOR_READERS = "left out: it is made of keys, the window's bounds and constants, which a view over the table can do"
_AUXILIARY = re.compile(r"(TUMBLE|HOP|SESSION)_(START|END|ROWTIME|PROCTIME)")


def grouping(relation: Relation, groups: list[SqlNode], query: Query) -> tuple[SqlNode, list[SqlNode], bool]:
    """The window function, the other expressions of GROUP BY, and whether it is one of the older group windows."""
    old = [group for group in groups if not group.is_leaf and group.operator.lstrip("$") in _GROUP_WINDOWS]
    keys = [group for group in groups if group not in old]
    for key in keys:
        if key.kind in ("ROLLUP", "CUBE", "GROUPING_SETS"):
            raise NoCounterpartError(key.text, "several groupings at once", key.line)
    if not relation.window and not old:
        what = "GROUP BY without a window" if groups else "a query without a window"
        raise NoCounterpartError(what, NO_WINDOW, query.line)
    if old:
        return old[0], keys, True
    keys = [key for key in keys if not (key.kind == "IDENTIFIER" and key.names[-1] in _WINDOW_COLUMNS)]
    windows = {group.names[-1] for group in groups if group.kind == "IDENTIFIER"} & set(_WINDOW_COLUMNS)
    if not {"window_start", "window_end"} <= windows:
        raise NoCounterpartError("GROUP BY", "it does not name window_start and window_end", query.line)
    _refuse_other_sessions(relation.window, keys)
    return relation.window, keys, False


def _refuse_other_sessions(window: SqlNode, keys: list[SqlNode]) -> None:
    """Sessions are those of the keys; PARTITION BY may name no other ones."""
    data = argument(window, 0, "DATA")
    if window.operator != "SESSION" or not data:
        return
    partition = data.operands[1] if data.kind == "SET_SEMANTICS_TABLE" else NOTHING
    named = {node.names[-1] for node in partition.operands}
    if named != {key.names[-1] if key.kind == "IDENTIFIER" else key.text for key in keys}:
        why = "the sessions of a definition are those of its keys: PARTITION BY and GROUP BY must name the same"
        raise NoCounterpartError("SESSION", why, window.line)


def add_keys(
    lines: Lines, keys: list[SqlNode], items: SqlNode, relation: Relation, parser: FlinkParser, hidden: Container[str]
) -> None:
    """Add `keys`. `hidden`: names in small letters that other expressions use, so that a key may not hide them."""
    aliases = {item.operands[0].text: item.operands[1].names[-1] for item in items.operands if item.kind == "AS"}
    if keys:
        lines.add("keys:")
    for number, key in enumerate(keys):
        plain = key.names[-1] if key.kind == "IDENTIFIER" else f"key_{number + 1}"
        name = wanted = _column(aliases.get(key.text, plain))
        made = translated(key, relation.scope, parser)
        while name.lower() in hidden and not is_same_sql(name, made.sql):
            name += "_2"
        if name != wanted:
            why = f"here the key is {name}: as {wanted} it would hide the column that other expressions use"
            lines.remark(key.line, f"key {wanted}", why)
        lines.remarks += made.remarks
        lines.add(f"  {name}: {scalar(made.sql)}", key.line)


def add_filter(lines: Lines, relation: Relation, where: SqlNode, parser: FlinkParser) -> str:
    """Add `filter`: the WHERE of the query and of the views that it reads, which it gives; empty for none."""
    conditions = list(relation.conditions)
    lines.remarks += relation.remarks
    if where:
        made = translated(where, relation.scope, parser)
        lines.remarks += made.remarks
        conditions.append(made.sql)
    text = all_of(conditions)
    if text:
        lines.add("filter:")
        lines.add(f"  after_watermark: {scalar(text)}", where.line, "WHERE comes after the source's watermark")
    return text


def all_of(conditions: Sequence[str]) -> str:
    """The conditions together; empty where there is none."""
    return " AND ".join(f"({condition})" for condition in conditions) if conditions[1:] else "".join(conditions)


def add_window(lines: Lines, call: SqlNode, parser: FlinkParser, time: EventTime, script: Script) -> Located | None:
    """Add `window`; gives the zone in whose wall clock it lies, where that is not told by `window` itself.

    Raises NoCounterpartError for a window that is not over the event time, and for months.
    """
    function = call.operator.lstrip("$")
    is_group = call.kind != "OTHER_FUNCTION"
    shift = -1 if is_group else 0  # the group windows have no argument DATA

    def length(place: int, name: str) -> int | None:
        node = argument(call, place + shift, name)
        if not node:
            return None
        found = parser.milliseconds(node)
        if found is None:
            raise NoCounterpartError(node.text, "a length in months or years is not fixed", node.line)
        return found

    column = argument(call, 1 + shift, "TIMECOL")
    names = {node.names[-1] for node in column.all() if node.kind == "IDENTIFIER"}
    if time.column not in names:
        raise NoCounterpartError(f"{function} over {', '.join(sorted(names))}", "not the event time", call.line)
    fields = {
        "TUMBLE": {"type": "tumbling", "size": length(2, "SIZE"), "offset": length(3, "OFFSET")},
        "HOP": {
            "type": "sliding",
            "size": length(3, "SIZE"),
            "slide": length(2, "SLIDE"),
            "offset": length(4, "OFFSET"),
        },
        "CUMULATE": {
            "type": "cumulative",
            "size": length(3, "SIZE"),
            "step": length(2, "STEP"),
            "offset": length(4, "OFFSET"),
        },
        "SESSION": {"type": "session", "gap": length(2, "GAP")},
    }[function]
    zone = script.settings.get("table.local-time-zone") if time.is_local else None
    shown = zone is not None and follows_wall_clock(zone.text, function, fields.get("size"))
    fields = fields if shown or not time.is_local else _shifted(fields, function, zone)
    lines.add("window:")
    for name, value in fields.items():
        if value is not None:
            lines.add(f"  {name}: {format_duration(value) if isinstance(value, int) else value}", call.line)
    if time.is_local and not shown and (step := fields.get("slide" if function == "HOP" else "size")):
        _add_zone(lines, zone, function, int(step), call.line)
    if time.is_local and function == "SESSION" and zone is None:
        why = (
            "CHECK: sessions over TIMESTAMP_LTZ lie in the session zone's wall clock: name it as "
            "`flink_sql.time_zone` if it changes its clocks"
        )
        lines.remark(call.line, "no table.local-time-zone", why)
    return zone if shown else None


def _shifted(
    fields: Mapping[str, str | int | None], function: str, zone: Located | None
) -> Mapping[str, str | int | None]:
    """The window with the offset of its zone's clock, where that clock never changes against it.

    Windows over TIMESTAMP_LTZ begin by the session's clock.
    """
    step = fields.get("slide" if function == "HOP" else "size")
    phases = phases_of(zone.text, step) if zone is not None and isinstance(step, int) else set()
    if len(phases) != 1 or phases == {0} or _has_days(function, step):
        return fields
    assert isinstance(step, int)
    offset = fields.get("offset") or 0
    assert isinstance(offset, int)
    return {**fields, "offset": -((phases.pop() - offset) % step)}


def follows_wall_clock(zone: str, function: str, size: str | int | None) -> bool:
    """Whether windows over TIMESTAMP_LTZ lie in a clock that changes, and are no days, which have `time_zone`."""
    return len(phases_of(zone, DAY)) > 1 and not _has_days(function, size)


def _has_days(function: str, step: str | int | None) -> bool:
    """Whether the windows are days of a zone, for which a definition has `time_zone`."""
    return function == "TUMBLE" and step == DAY


def _add_zone(lines: Lines, zone: Located | None, function: str, step: int, line: int) -> None:
    """Add `time_zone` to days, or remark where windows may begin at other times than in UTC."""
    if zone is not None and _has_days(function, step) and phases_of(zone.text, step) != {0}:
        lines.add(f"  time_zone: {zone.text}", zone)
    elif zone is None or len(phases_of(zone.text, step)) != 1:
        why = "CHECK: windows over TIMESTAMP_LTZ begin in the session's time zone; here they begin in UTC"
        lines.remark(line, zone.text if zone else "no table.local-time-zone", why)


def add_lateness(lines: Lines, script: Script, is_group_window: bool, function: str) -> None:
    """Add `allowed_lateness`: only the older group windows but sessions can have one, and only with late firing."""
    emits = {name.removeprefix(EMIT): value for name, value in script.settings.items() if name.startswith(EMIT)}
    lateness, on = emits.pop("allow-lateness", None), emits.pop("late-fire.enabled", Located("false", 0))
    delay, kept = emits.pop("late-fire.delay", None), lateness or script.settings.get("table.exec.state.ttl")
    is_on, refused_for = on.text == "true", "sessions" if function == "SESSION" else ""
    refused_for = refused_for if is_group_window else "windows of a table function"
    if is_on and (refused_for or kept is None):
        what = f"for {refused_for}" if refused_for else "without allow-lateness or table.exec.state.ttl"
        lines.remark(on.line, "late-fire.enabled", f"Flink refuses it {what}: a late record is dropped here")
    if is_on and not refused_for and kept is not None:
        why = "" if lateness else "without allow-lateness it is the state's time to live"
        lines.add(f"allowed_lateness: {kept.text}", kept, why)
        if delay is not None and not delay.text.startswith("0"):
            why = "here each late record fires at once; rows after a delay of Flink's clock were not compared"
            lines.remark(delay.line, f"late-fire.delay {delay.text}", why)
    else:
        lines.add("allowed_lateness: 0", None, "a late record is dropped")
        if lateness is not None:
            why = "without late-fire.enabled Flink drops late records" if not is_on else "Flink refuses late-fire here"
            lines.remark(lateness.line, f"allow-lateness {lateness.text}", why)
    for name, value in emits.items():
        why = "early results are not replayed; the last value is not changed by them"
        if refused_for:
            why = f"Flink refuses early and late firing for {refused_for}"
        lines.remark(value.line, f"SET '{EMIT}{name}' = '{value.text}'", why)


def add_aggregates(
    lines: Lines,
    items: SqlNode,
    relation: Relation,
    parser: FlinkParser,
    keys: Container[str],
    script: Script,
    query: Query,
) -> dict[str, str]:
    """Add `aggregates`, named as in SELECT, else as the sink's columns; gives their SQL. Raises NoCounterpartError.

    `keys`: the keys' texts in GROUP BY.
    """
    sink = script.tables.get(query.sink or "")
    of_sink = query.columns or (tuple(column.name for column in sink.columns) if sink is not None else ())
    there: dict[str, tuple[str, int]] = {}
    for place, item in enumerate(items.operands):
        source = item.operands[0] if item.kind == "AS" else item
        if source.text in keys:
            continue
        if _is_window_column(source):
            _remark_window_column(lines, item, source)
            continue
        if not has_aggregate(source):
            if not _is_of_group(source, keys):
                raise NoCounterpartError(item.text, "neither a key nor an aggregate", item.line)
            lines.remark(item.line, item.text[:60], _FOR_READERS)
            continue
        alias = item.operands[1].names[-1] if item.kind == "AS" else ""
        name = _column(alias or (of_sink[place] if place < len(of_sink) else f"value_{place + 1}"))
        while name in there:
            name += "_2"
        made = translated(source, relation.scope, parser)
        lines.remarks += made.remarks
        there[name] = (made.sql, item.line)
    if not there:
        raise NoCounterpartError("SELECT", "it has no aggregate", items.line)
    lines.add("aggregates:")
    for name, (text, line) in there.items():
        lines.add(f"  {name}: {scalar(text)}", line)
    return {name: text for name, (text, _) in there.items()}


def _remark_window_column(lines: Lines, item: SqlNode, source: SqlNode) -> None:
    """Remark on a column of the window that has another name here, or none."""
    name = source.names[-1] if source.kind == "IDENTIFIER" else source.operator.lstrip("$").upper()
    column = "window_start" if name.endswith(("start", "_START")) else "window_end"
    if name.endswith(("time", "TIME")):
        lines.remark(item.line, item.text, "the table of results has no such column: it is window_end less 1 ms")
    elif item.kind == "AS" and item.operands[1].names[-1] != column:
        lines.remark(item.line, item.text, f"the table of results names it {column}")


def _is_of_group(node: SqlNode, keys: Container[str]) -> bool:
    """Whether a row's keys, its window and constants give the value, so that readers of the table can compute it."""
    if not node or node.text in keys or _is_window_column(node):
        return True
    return node.kind != "IDENTIFIER" and all(_is_of_group(part, keys) for part in node.operands)


def _is_window_column(node: SqlNode) -> bool:
    if node.kind == "IDENTIFIER":
        return node.names[-1] in _WINDOW_COLUMNS
    return not node.is_leaf and bool(_AUXILIARY.fullmatch(node.operator.lstrip("$")))


def _column(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "value"
    plain = plain if not plain[0].isdigit() else f"c_{plain}"
    return f"{plain}_" if plain.lower() in RESERVED_COLUMNS else plain
