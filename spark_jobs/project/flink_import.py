"""A Flink SQL script as pipeline definitions: one for each windowed query, and a list of what has no counterpart."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError, Py4JJavaError

from spark_jobs.errors import DefinitionError
from spark_jobs.project.flink_deduplication import TTL, add_deduplication
from spark_jobs.project.flink_expressions import Scope
from spark_jobs.project.flink_lookup import add_lookup
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql, is_same_sql, tidy
from spark_jobs.project.flink_phases import CHECKPOINTS, PHASES, add_flink_sql
from spark_jobs.project.flink_query import (
    EMIT,
    NO_WINDOW,
    add_aggregates,
    add_filter,
    add_keys,
    add_lateness,
    add_window,
    all_of,
    grouping,
)
from spark_jobs.project.flink_relation import Relation, clauses, filtered, hint_left_out, refuse_names, resolve
from spark_jobs.project.flink_script import (
    Located,
    NoCounterpartError,
    Query,
    Remark,
    Script,
    inner_queries,
    read_script,
    spark_type,
)
from spark_jobs.project.flink_source import (
    EventTime,
    Lines,
    Timer,
    add_history,
    add_watermark,
    columns_left_out,
    columns_of,
    event_time,
    of_sink,
    on_files,
)
from spark_jobs.project.yaml_text import scalar

_NO_EFFECT = (
    *("execution.", "state.", "restart-strategy", "pipeline.name", "pipeline.max"),
    *("sql-client.", "table.exec.state.ttl", "taskmanager.", "jobmanager.", "rest."),
    *("pipeline.object", "table.dml-sync", "table.display"),
    *("table.exec.sink", "table.sql-dialect", "checkpointing."),
)
_HAVING = (
    "the published table has every window: import the query without it, and let readers filter the rows, as in "
    "`SELECT ... FROM table WHERE condition`, or in a view"
)
_USED = (
    *("table.exec.source.idle-timeout", "pipeline.auto-watermark-interval", "table.local-time-zone", TTL),
    *(PHASES, CHECKPOINTS),
)
_PARALLEL = ("parallelism.default", "table.exec.resource.default-parallelism")
_NOT_RECORDED = ("table.optimizer", "table.exec.mini-batch")


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition from a script: its name and its YAML."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A query that could not become a definition: its name, its line, and why."""

    name: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What a script became: definitions, and every part of it that is not, or not exactly, in one of them.

    `missing`: the queries of which there is no definition.
    """

    definitions: tuple[Definition, ...]
    remarks: tuple[Remark, ...]
    missing: tuple[Missing, ...] = ()


def import_script(
    text: str,
    file: str,
    parser: FlinkParser,
    timer_start: str | None = None,
    history: str | None = None,
    version: str | None = None,
) -> Imported:
    """Import a script of a job on this version of Flink. Raises DefinitionError for text that is not Flink SQL.

    `history`: files that hold the records of the script's topics, as `files:data/*.jsonl`; None: the topics are read.
    """
    statements, unread = parser.statements(text)
    script = read_script(statements)
    if unread and not script.queries:
        raise DefinitionError(unread[0].why, file, "Correct the script.")
    if history is not None:
        script.tables = {name: on_files(table, history) for name, table in script.tables.items()}
    remarks = [_unused(name, value) for name, value in script.settings.items() if not name.startswith(EMIT)]
    found = [remark for remark in remarks if remark is not None]
    found += [Remark(other.line, other.text[:60], "this statement has no counterpart") for other in script.others]
    found += [Remark(one.line, one.text, one.why) for one in unread]
    found += _unused_tables(script)
    definitions: list[Definition] = []
    missing = [Missing(one.text, one.line, one.why) for one in unread]
    timer = Timer(timer_start, script.settings.get, version)
    for number, query in enumerate(script.queries):
        name = plain_name(query.sink or f"{file.rpartition('/')[2].partition('.')[0]}_{number + 1}")
        name = _unused_name(name, {*(one.name for one in definitions), *(one.name for one in missing)})
        made = _attempt(name, query, script, parser, timer, file)
        if isinstance(made, _Refused):
            found.append(made.remark)
            inner, refused = _windows_within(name, query, script, parser, timer, file)
            if not inner:
                missing.append(Missing(name, query.line, made.why))
            found += [one.remark for one in refused]
            missing += [Missing(name, one.remark.line, one.why) for one in refused if inner]
            for own, lines in inner.items():
                found += [
                    Remark(query.line, own, f"only the window within the query of line {query.line}"),
                    *lines.remarks,
                ]
                definitions.append(Definition(own, "\n".join(lines.yaml) + "\n"))
            continue
        found += made.remarks
        definitions.append(Definition(name, "\n".join(made.yaml) + "\n"))
    if not script.queries:
        found.append(Remark(1, "the script", "it has no query: a definition needs the windows of one"))
    if (ttl := script.settings.get(TTL)) is not None and not any("\ndeduplicate:" in one.text for one in definitions):
        found.append(Remark(ttl.line, f"SET '{TTL}' = '{ttl.text}'", "no window's state depends on it"))
    unique = dict.fromkeys(sorted(found, key=lambda remark: remark.line))
    made = tuple(_with_remarks(one, tuple(unique)) for one in definitions)
    return Imported(made, tuple(unique), tuple(missing))


@dataclass(frozen=True, slots=True)
class _Refused:
    """A query without a definition: the remark on its part, and why it is missing."""

    remark: Remark
    why: str


def _attempt(name: str, query: Query, script: Script, parser: FlinkParser, timer: Timer, file: str) -> Lines | _Refused:
    """The definition of a query, or why there is none. One that cannot be read never takes the others with it."""
    try:
        return _definition(name, query, script, parser, timer, file)
    except Py4JError as error:
        why = f"Flink's parser cannot write a part of it as Spark SQL: {_reason(error)}"
        what = f"the query of line {query.line}"
        return _Refused(Remark(query.line, what, why), f"{what}: {why}")
    except NoCounterpartError as gap:
        what = f"{gap.what} (query of line {query.line})"
        return _Refused(Remark(gap.line, what, gap.why), f"{gap.what}: {gap.why}")


def _windows_within(
    name: str, query: Query, script: Script, parser: FlinkParser, timer: Timer, file: str
) -> tuple[dict[str, Lines], list[_Refused]]:
    """Definitions of the window aggregates within a query that has none: those of its subqueries and views.

    And those of them that could not become a definition.
    """
    found: dict[str, Lines] = {}
    refused: list[_Refused] = []
    for inner in inner_queries(query.select, script):
        own = _unused_name(f"{name}_windows", found)
        one = replace(query, sink=None, select=inner, line=inner.line, columns=())
        made = _attempt(own, one, script, parser, timer, file)
        if isinstance(made, _Refused):
            refused += [] if made.why.endswith(NO_WINDOW) else [made]
        elif _body(made) not in map(_body, found.values()):
            found[own] = made
    return found, refused


def _body(lines: Lines) -> list[str]:
    """The lines of a definition without its name and the comments."""
    return [line.partition("  # ")[0].rstrip() for line in lines.yaml if not line.startswith(("name:", "#"))]


def _unused_name(name: str, taken: Container[str]) -> str:
    """The name, with a number where another query of the script has it: several write into one sink."""
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


def _reason(error: Py4JError) -> str:
    message = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(message).splitlines()[0][:200]


def _unused(name: str, value: Located) -> Remark | None:
    if name in _USED:
        return None
    why = "is not about windows or times" if name.startswith(_NO_EFFECT) else "has no counterpart"
    if name.startswith(_NOT_RECORDED):
        why = "CHECK: it changes the plan; what that does to late records was not recorded"
    if name in _PARALLEL:
        why = "how many subtasks the source has: say in watermark.subtasks which partitions each one reads"
    return Remark(value.line, f"SET '{name}' = '{value.text}'", why)


def _unused_tables(script: Script) -> Iterator[Remark]:
    """The tables and views that no query reads or writes."""
    used = {query.sink for query in script.queries}
    waiting = [query.select for query in script.queries]
    while waiting:
        names = {node.names[-1] for node in waiting.pop().all() if node.kind == "IDENTIFIER"} - used
        used |= names
        waiting += [script.views[name] for name in names if name in script.views]
    why = "no query of the script reads or writes it"
    yield from (Remark(table.line, f"table {name}", why) for name, table in script.tables.items() if name not in used)
    yield from (Remark(view.line, f"view {name}", why) for name, view in script.views.items() if name not in used)


def _with_remarks(definition: Definition, remarks: tuple[Remark, ...]) -> Definition:
    head, _, rest = definition.text.partition("\n\n")
    if remarks:
        listed = "\n".join(f"#   line {remark.line}: {remark.what}: {remark.why}" for remark in remarks)
        head += f"\n#\n# Of the script these parts are not, or not exactly, in this definition:\n{listed}"
    return Definition(definition.name, f"{head}\n\n{rest}")


def _definition(name: str, query: Query, script: Script, parser: FlinkParser, timer: Timer, file: str) -> Lines:
    base: dict[str, Scope] = {}
    zone = script.settings.get("table.local-time-zone")
    times: dict[str, EventTime] = {}
    for table in script.tables.values():
        base[table.name] = Scope({})
        if table.watermark is not None:
            with suppress(NoCounterpartError):  # raised below where the query reads the table
                times[table.name] = event_time(table, parser, zone)
                base[table.name] = columns_of(table, times[table.name], parser, zone)
    if query.select.kind != "SELECT":
        why = "a definition has one SELECT with a window and GROUP BY"
        raise NoCounterpartError(query.select.kind.replace("_", " "), why, query.line)
    parts = clauses(query.select)
    if having := parts["having"]:
        raise NoCounterpartError(f"HAVING {having.text}"[:60], _HAVING, having.line)
    for clause in ("keywords", "windows", "qualify", "order", "offset", "fetch"):
        if there := parts[clause]:
            raise NoCounterpartError(f"{clause.upper()} {there.text}"[:60], "has no counterpart", there.line)
    relation = resolve(parts["from"], script, parser, base)
    refuse_names(relation, parts["items"], parts["where"], parts["group"])
    relation, where = filtered(relation, parts["where"])
    if not relation.inputs and relation.table.name not in times:
        times[relation.table.name] = event_time(relation.table, parser, zone)
    time = time_of(relation, times, query.select)
    relation = with_conditions(relation)
    window, keys, is_group_window = grouping(relation, parts["group"].operands, query)
    lines, of_keys, rest = Lines(), Lines(), Lines()
    lines.add("# yaml-language-server: $schema=../pipeline.schema.json\n#")
    lines.add(f"# Written by `rewindow import flink-sql` from {file}; comments name the lines of that script.\n")
    lines.add(f"name: {name}", query.line)
    lines.remarks += [*query.remarks, *map(hint_left_out, parts["hints"].operands)]
    if relation.lookup is not None:
        add_lookup(rest, relation.lookup)
    texts = [add_filter(rest, relation, where, parser), *(relation.first.by if relation.first else ())]
    if relation.first is not None:
        ttl, kind = script.settings.get(TTL), window.operator.lstrip("$")
        add_deduplication(rest, relation.first, relation.table, time, ttl, kind)
    shown = add_window(rest, window, parser, _as_named(time, relation, window), script)
    add_lateness(rest, script, is_group_window, window.operator.lstrip("$"))
    add_flink_sql(
        rest, script, window.operator.lstrip("$"),
        is_group_window=is_group_window, is_union=bool(relation.inputs), shown=shown,
    )  # fmt: skip
    aggregates = add_aggregates(rest, parts["items"], relation, parser, {key.text for key in keys}, script, query)
    hidden = {name.lower() for name in aggregates} | _columns_in([*texts, *aggregates.values()], relation, times)
    add_keys(of_keys, keys, parts["items"], relation, parser, hidden)
    if relation.inputs:
        add_inputs(lines, relation, times, of_keys, rest, parser, timer, query.line)
    else:
        add_source(lines, relation, time, of_keys, parser, timer)
    lines.extend(rest)
    lines.add("end_of_input: freeze", None, "the live job leaves open windows open; `flush` fires them")
    if (sink := script.tables.get(query.sink or "")) is not None and sink.name != relation.table.name:
        lines.remark(sink.line, *of_sink(sink))
    if query.sink:
        lines.add("# live:", query.line, f"to compare with what the job wrote, name the table behind {query.sink}")
    return lines


def _columns_in(texts: Sequence[str], relation: Relation, times: Mapping[str, EventTime]) -> set[str]:
    """The columns of the records that these expressions or the event time use, in small letters."""
    found = set(relation.columns) if relation.inputs else set()
    tables = [one.table for one in relation.inputs or (relation,)]
    for table in [*tables, *([relation.lookup.table] if relation.lookup else [])]:
        found |= {column.metadata or column.name for column in table.columns if column.computed is None}
    words = " ".join((*texts, *(times[table.name].expression for table in tables)))
    return {name.lower() for name in found} & {*re.findall(r"\w+", words.lower())}


def _as_named(time: EventTime, relation: Relation, window: SqlNode) -> EventTime:
    """The event time under the name that the window knows it by; under none where that column is another one."""
    if relation.inputs:
        return time
    columns = relation.window_columns or relation.columns
    named = {node.names[-1] for node in window.all() if node.kind == "IDENTIFIER"}
    known = (name for name in named if is_same_sql(columns.get(name, ""), time.elsewhere))
    return replace(time, column=next(known, ""))


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
    zone = timer.setting("table.local-time-zone")
    lines.remarks += columns_left_out(relation.table, time, used, parser, zone)
    for what, line in relation.table.left_out:
        lines.remark(
            line, what, "Flink does not enforce it, nor is it here" if what == "PRIMARY KEY" else "has no counterpart"
        )
    add_history(lines, relation.table)
    lines.extend(keys)
    lines.add("event_time:")
    lines.add(f"  expression: {scalar(time.expression)}", time.line)
    lines.remarks += time.remarks
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
    inputs = tuple(
        replace(one, columns={**one.columns, name: all_of(one.conditions) or "TRUE"}) for one in relation.inputs
    )
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


def _free(name: str, inputs: Iterable[Relation]) -> str:
    taken = {
        known.lower() for one in inputs for known in (*one.columns, *(column.name for column in one.table.columns))
    }
    while name in taken:
        name += "_"
    return name
