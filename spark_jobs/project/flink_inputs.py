"""What a query of a Flink SQL script reads, as sections of a definition: one table, or several behind UNION ALL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql, is_same_sql, tidy
from spark_jobs.project.flink_relation import Relation
from spark_jobs.project.flink_script import NoCounterpartError, spark_type
from spark_jobs.project.flink_source import EventTime, Lines, Timer, add_history, add_watermark, columns_left_out
from spark_jobs.project.writing import scalar

_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_COUNTED, _ROW_TIME = "is_counted", "row_time"


def plain_name(name: str) -> str:
    """A name as a definition, or an input of one, can have it."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return plain if plain and plain[0].isalpha() else f"query_{plain}".rstrip("_")


def add_source(
    lines: Lines, relation: Relation, time: EventTime, keys: Lines, parser: FlinkParser, timer: Timer
) -> None:
    """Add `history`, `value`, `keys`, `event_time` and `watermark` of one table. Raises NoCounterpartError."""
    used = {relation.first.order if relation.first else "", relation.lookup.period if relation.lookup else ""}
    lines.remarks += columns_left_out(relation.table, time, used)
    for what, line in relation.table.left_out:
        lines.remark(line, what, "does not change results" if what == "PRIMARY KEY" else "has no counterpart")
    add_history(lines, relation.table)
    lines.extend(keys)
    lines.add("event_time:")
    lines.add(f"  expression: {scalar(time.expression)}", time.line)
    if time.is_doubtful:
        why = "CHECK: the event time by Spark's functions; it must be the same TIMESTAMP as in Flink"
        lines.remark(time.line, f"{time.column} AS {time.expression}", why)
    lines.add(f"  unit: {time.unit}")
    lines.add("  missing: fail", None, "as Flink does")
    add_watermark(lines, relation.table, time, parser, timer)


def time_of(relation: Relation, times: Mapping[str, EventTime], query: SqlNode) -> EventTime:
    """The event time of a relation; of a union that of its first input, under its name behind the union.

    Raises NoCounterpartError where no column is the event time of each input.
    """
    if not relation.inputs:
        return times[relation.table.name]
    for one in relation.inputs:
        if one.table.name not in times:
            why = "it has no WATERMARK FOR: without event time there is nothing to replay"
            raise NoCounterpartError(f"table {one.table.name}", why, one.table.line)
    for name in relation.inputs[0].columns:
        if all(is_same_sql(one.columns[name], times[one.table.name].elsewhere) for one in relation.inputs):
            return replace(times[relation.inputs[0].table.name], column=name)
    raise NoCounterpartError("UNION ALL", "no column is the event time of each of its tables", query.line)


def with_conditions(relation: Relation) -> Relation:
    """A union in which the conditions of inputs, which come behind their watermarks, are a column of each input."""
    if not any(one.conditions for one in relation.inputs):
        return relation
    name = _free(_COUNTED, relation.inputs)
    inputs = tuple(replace(one, columns={**one.columns, name: _all_of(one.conditions)}) for one in relation.inputs)
    return replace(relation, inputs=inputs, conditions=(name, *relation.conditions))


def add_inputs(
    lines: Lines,
    relation: Relation,
    times: Mapping[str, EventTime],
    keys: Lines,
    rest: Lines,
    parser: FlinkParser,
    timer: Timer,
    line: int,
) -> None:
    """Add `history` of a union. `keys` are the same in each input; `rest` is what the definition has once."""
    used = {word.lower() for word in re.findall(r"\w+", "\n".join((*keys.yaml, *rest.yaml)))}
    lines.add("history:")
    lines.add("  kind: union")
    lines.add("  of:")
    for name in relation.columns:
        kinds = {_type_of(name, one) for one in relation.inputs}
        is_sure = len(kinds) == 1 or kinds <= {*_WHOLE_NUMBERS}
        if name.lower() in used and not (is_sure and all(kinds)):
            why = "CHECK: it must have one type in all inputs; cast it under `columns` where it has not"
            lines.remark(line, f"column {name} of UNION ALL", why)
    names: list[str] = []
    for one in relation.inputs:
        name = plain_name(one.table.name)
        while name in names:
            name += "_2"
        names.append(name)
        time = times[one.table.name]
        columns = {n: _widened(n, sql, one, relation.inputs) for n, sql in one.columns.items() if n.lower() in used}
        columns = {n: sql for n, sql in columns.items() if sql != tidy(column_sql(n))}
        if any(re.search(rf"(?i)\b{re.escape(n)}\b", time.expression) for n in columns):
            own = _free(_ROW_TIME, relation.inputs)
            columns[own] = time.expression
            time = replace(time, expression=own)
        source, mapped = Lines(), Lines()
        mapped.add("columns:" if columns else "columns: {}")
        for column, sql in columns.items():
            mapped.add(f"  {scalar(column)}: {scalar(sql)}")
        if columns:
            mapped.extend(keys)
        add_source(source, one, time, mapped if columns else keys, parser, timer)
        lines.add(f"    - name: {name}", one.table.line)
        lines.extend(source, indent=6)


def _widened(name: str, sql: str, own: Relation, inputs: Sequence[Relation]) -> str:
    """The SQL of a column, in the widest type where all inputs have a whole number of the table."""
    kinds = [_type_of(name, one) for one in inputs]
    if any(kind not in _WHOLE_NUMBERS for kind in kinds) or len(set(kinds)) == 1:
        return tidy(sql)
    widest = max(kinds, key=_WHOLE_NUMBERS.index)
    return tidy(sql) if _type_of(name, own) == widest else f"CAST({tidy(sql)} AS {widest})"


def _type_of(name: str, relation: Relation) -> str:
    sql = relation.columns[name]
    return next((spark_type(one.type) for one in relation.table.columns if column_sql(one.name) == sql), "")


def _all_of(conditions: Sequence[str]) -> str:
    return (
        " AND ".join(f"({one})" for one in conditions) if conditions[1:] else (conditions[0] if conditions else "TRUE")
    )


def _free(name: str, inputs: Iterable[Relation]) -> str:
    taken = {
        known.lower() for one in inputs for known in (*one.columns, *(column.name for column in one.table.columns))
    }
    while name in taken:
        name += "_"
    return name
