"""A source table of a Flink SQL script as `history`, `value`, `event_time` and `watermark` of a definition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.kafka import SECRET
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.project.flink_expressions import Scope, Translated, translated
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql, tidy
from spark_jobs.project.flink_relation import METADATA, plain_columns, plain_types
from spark_jobs.project.flink_script import Column, Located, NoCounterpartError, Remark, SourceTable, spark_type
from spark_jobs.project.flink_types import FlinkType, Kind
from spark_jobs.project.sample import quoted

_FORMATS = {"json": "json", "csv": "csv", "raw": "text", "avro-confluent": "avro"}
_TYPED = ("parquet", "orc", "avro", "avro-confluent")
"""Formats whose times are times; in the others they are text."""
_CHANGES = ("debezium-json", "debezium-avro-confluent", "canal-json", "maxwell-json", "ogg-json")
_WATERMARK_OPTIONS = (
    *("scan.watermark.emit.strategy", "scan.watermark.idle-timeout"),
    *("scan.watermark.alignment.group", "scan.watermark.alignment.max-drift"),
)
"""The options of a table that `add_watermark` reads."""
_DOUBTFUL = "CHECK: the event time by Spark's functions; it must be the same TIMESTAMP as in Flink"
_LATER = "Flink emits at the ticks of a timer, whose phase is in no script: name it with --timer-start."


@dataclass(slots=True)
class Lines:
    """Lines of YAML in the making, and what could not become one."""

    yaml: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def add(self, text: str, source: Located | int | None = None, note: str = "") -> None:
        """Add a line of YAML, with the line of the script that it comes from."""
        line = source.line if isinstance(source, Located) else source
        origin = f"line {line}" if line else ""
        comment = ", ".join(part for part in (origin, note) if part)
        self.yaml.append(f"{text:<50}  # {comment}" if comment else text)

    def extend(self, other: Lines, indent: int = 0) -> None:
        """Add the lines and remarks of another one."""
        self.yaml += [f"{' ' * indent}{line}" for line in other.yaml]
        self.remarks += other.remarks

    def remark(self, line: int, what: str, why: str) -> None:
        """Say that a part has no, or no exact, counterpart."""
        self.remarks.append(Remark(line, what, why))


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time: its SQL and unit in the definition, and the SQL that stands for the column elsewhere.

    `remarks`: what of it Spark may read otherwise.
    """

    column: str
    expression: str
    unit: str
    elsewhere: str
    is_local: bool
    line: int
    remarks: tuple[Remark, ...] = ()


def event_time(table: SourceTable, parser: FlinkParser, zone: Located | None = None) -> EventTime:
    """The event time of a table with a watermark. `zone`: the session's. Raises NoCounterpartError."""
    if table.watermark is None:
        why = "it has no WATERMARK FOR: without event time there is nothing to replay"
        raise NoCounterpartError(f"table {table.name}", why, table.line)
    target = table.watermark.operands[0]
    name = target.names[-1]
    column = table.column(name)
    if column is None:
        raise NoCounterpartError(
            f"WATERMARK FOR {target.text}", "it names no column of the table", table.watermark.line
        )
    is_local = "LTZ" in column.type or "LOCAL TIME ZONE" in column.type
    if column.metadata is not None:
        if column.metadata != "timestamp":
            raise NoCounterpartError(f"metadata {column.metadata}", "as event time", column.line)
        return EventTime(name, tidy("`timestamp`"), "timestamp", "`timestamp`", is_local, column.line)
    if column.computed is not None:
        return _computed(name, column, column.computed, table, parser, zone)
    plain = column_sql(name)
    formats = (table.options.get(name, Located("", 0)).text for name in ("format", "value.format"))
    if any(one in _TYPED for one in formats):
        return EventTime(name, tidy(f"CAST({plain} AS TIMESTAMP)"), "timestamp", plain, is_local, column.line)
    converted = f"try_to_timestamp({plain})"
    if is_local:
        return EventTime(name, tidy(plain), "iso", converted, True, column.line)
    return EventTime(name, tidy(converted), "timestamp", converted, False, column.line)


def _computed(
    name: str, column: Column, computed: SqlNode, table: SourceTable, parser: FlinkParser, zone: Located | None
) -> EventTime:
    columns = plain_columns(table) | {
        other.name: METADATA[other.metadata] for other in table.columns if other.metadata in METADATA
    }
    scope = Scope(columns, plain_types(table), "", zone.text if zone else None)
    function = computed.operator if not computed.is_leaf else ""
    parts = list(filter(None, computed.operands))
    if function == "PROCTIME":
        raise NoCounterpartError("PROCTIME()", "processing time has no counterpart", column.line)
    if function == "TO_TIMESTAMP_LTZ" and (len(parts) == 1 or parts[1].literal in ("0", "3")):
        unit = "s" if len(parts) == 2 and parts[1].literal == "0" else "ms"
        made = translated(parts[0], scope, parser)
        wrapper = "timestamp_seconds" if unit == "s" else "timestamp_millis"
        return EventTime(name, made.sql, unit, f"{wrapper}({made.sql})", True, column.line, made.remarks)
    if function == "TO_TIMESTAMP" and len(parts) == 1 and _is_second_of_clock(parts[0]):
        return _by_clock(name, column, translated(parts[0].operands[0], scope, parser), zone)
    made = translated(computed, scope, parser)
    is_time = made.type.kind in (Kind.TIMESTAMP, Kind.INSTANT)
    remarks = made.remarks if is_time else (*made.remarks, Remark(column.line, f"{name} AS {made.sql}", _DOUBTFUL))
    return EventTime(name, made.sql, "timestamp", made.sql, made.type.kind is Kind.INSTANT, column.line, remarks)


def _is_second_of_clock(node: SqlNode) -> bool:
    """Whether it is FROM_UNIXTIME in the form that TO_TIMESTAMP reads."""
    if node.is_leaf or node.operator.upper() != "FROM_UNIXTIME":
        return False
    pattern = node.operands[1:]
    return not pattern or pattern[0].text == "'yyyy-MM-dd HH:mm:ss'"


def _by_clock(name: str, column: Column, seconds: Translated, zone: Located | None) -> EventTime:
    """TO_TIMESTAMP(FROM_UNIXTIME(seconds)): whole seconds, as the session's clock shows them, without a zone."""
    instant, line = f"timestamp_seconds({seconds.sql})", column.line
    if zone is None or zone.text == "UTC":
        why = "CHECK: FROM_UNIXTIME gives the session's time, here that of UTC: set the job's zone"
        doubts = () if zone else (Remark(line, f"{name} AS {seconds.sql}", why),)
        return EventTime(name, seconds.sql, "s", instant, False, line, (*seconds.remarks, *doubts))
    local = f"from_utc_timestamp({instant}, '{zone.text}')"
    return EventTime(name, local, "timestamp", local, False, line, seconds.remarks)


def columns_of(table: SourceTable, time: EventTime, parser: FlinkParser, zone: Located | None) -> Scope:
    """Every column of a table over the fields that are decoded, in the table's order.

    What has no counterpart stands for itself. Raises NoCounterpartError.
    """
    known = _known_columns(table, time, zone)
    made = dict(_computed_columns(table, time, parser, zone))
    columns = {
        column.name: f"({made[column.name].sql})"
        if column.name in made
        else known.columns.get(column.name, column_sql(column.name))
        for column in table.columns
    }
    return Scope(columns, {**known.types, **{name: one.type for name, one in made.items()}}, "", known.zone)


def _known_columns(table: SourceTable, time: EventTime, zone: Located | None) -> Scope:
    """The columns that are not computed, and the event time."""
    columns = plain_columns(table)
    for column in table.columns:
        if column.metadata in METADATA:
            columns[column.name] = METADATA[column.metadata or ""]
    kind = FlinkType(Kind.INSTANT if time.is_local else Kind.TIMESTAMP)
    types = {**plain_types(table), time.column: kind}
    return Scope({**columns, time.column: time.elsewhere}, types, "", zone.text if zone else None)


def _computed_columns(
    table: SourceTable, time: EventTime, parser: FlinkParser, zone: Located | None
) -> Iterator[tuple[str, Translated]]:
    """The computed columns but the event time and processing times."""
    scope = _known_columns(table, time, zone)
    for column in table.columns:
        if column.computed is not None and column.name != time.column and not _is_processing_time(column.computed):
            yield column.name, translated(column.computed, scope, parser)


def columns_left_out(
    table: SourceTable, time: EventTime, but: Container[str], parser: FlinkParser, zone: Located | None
) -> Iterator[Remark]:
    """The metadata and computed columns of a source that are not, or not surely, what they are in Flink.

    `but`: the columns by which a deduplication orders, and a lookup asks.
    """
    made = dict(_computed_columns(table, time, parser, zone))
    for column in table.columns:
        if column.metadata is not None and column.metadata not in METADATA:
            yield Remark(column.line, f"column {column.name} METADATA FROM '{column.metadata}'", "has no counterpart")
        if column.computed is None or column.name == time.column or column.name in but:
            continue
        if _is_processing_time(column.computed):
            why = "processing time has no counterpart"
            yield Remark(column.line, f"column {column.name} AS {column.computed.text}", why)
        else:
            yield from made[column.name].remarks


def _is_processing_time(computed: SqlNode) -> bool:
    return any(not node.is_leaf and node.operator == "PROCTIME" for node in computed.all())


_OF_FILES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
             ".orc": "orc", ".avro": "avro"}  # fmt: skip
_PLACED = {"partition": ("kafka_partition", "INT"), "offset": ("kafka_offset", "BIGINT"),
           "arrival": ("kafka_timestamp", "TIMESTAMP")}  # fmt: skip
"""What files of a topic have to hold beside the records, under names that a person corrects."""


def on_files(table: SourceTable, history: str) -> SourceTable:
    """The table with its topic's records in files, `history` as `files:data/*.jsonl`. Raises DefinitionError."""
    kind, _, path = history.partition(":")
    if kind != "files" or not path:
        raise DefinitionError(f"--history {history!r}", hint="Write files:PATTERN, as files:data/*.jsonl.")
    return replace(table, files=path) if table.options.get("connector", Located("", 0)).text == "kafka" else table


def _files_instead(lines: Lines, table: SourceTable, options: dict[str, Located], connector: Located) -> None:
    """Add the files that hold the topic's records; what the script says of the topic has no effect then."""
    _kafka(Lines(), table, options, connector)
    suffix = PurePath(table.files).suffix
    lines.add("  kind: files", None, "--history, in place of the topic")
    lines.add(f"  path: {json.dumps(table.files)}")
    if suffix not in _OF_FILES:
        why = f"its name ends in none of {', '.join(_OF_FILES)}"
        raise NoCounterpartError(f"--history files:{table.files}", why, connector.line)
    lines.add(f"  format: {_OF_FILES[suffix]}")
    placed = ", ".join(f"{name}: {column}" for name, (column, _) in _PLACED.items())
    lines.add(f"  position: {{{placed}}}", None, "CHECK: the columns of the files that hold them")


def add_history(lines: Lines, table: SourceTable) -> None:
    """Add `history` and `value`. Raises NoCounterpartError for connectors and formats that have none."""
    options = dict(table.options)
    connector = options.pop("connector", Located("", table.line))
    lines.add("history:")
    if table.files:
        _files_instead(lines, table, options, connector)
    elif connector.text == "kafka":
        _kafka(lines, table, options, connector)
    elif connector.text == "filesystem" and "path" in options:
        path = options.pop("path")
        file_format = options.get("format", Located("", table.line))
        if file_format.text not in ("json", "csv", "parquet", "orc", "avro"):
            why = "files are read as parquet, orc, avro, json or csv"
            raise NoCounterpartError(f"format {file_format.text}", why, path.line)
        lines.add("  kind: files", connector)
        lines.add(f"  path: {json.dumps(path.text)}", path)
        lines.add(f"  format: {file_format.text}", file_format)
        why = "files have no order of arrival: name partition, offset and arrival under history.position"
        lines.remark(connector.line, "'connector' = 'filesystem'", why)
    else:
        why = "a history is a Kafka topic, files or a Hive table: write `history` by hand"
        raise NoCounterpartError(f"'connector' = '{connector.text}'", why, connector.line)
    _value(lines, table, options, is_topic=connector.text == "kafka" and not table.files)
    for name, option in options.items():
        if name not in _WATERMARK_OPTIONS:
            text = "***" if SECRET.search(f"{name} {option.text}") else option.text
            lines.remark(option.line, f"'{name}' = '{text}'", why_left_out(table, name))


def _kafka(lines: Lines, table: SourceTable, options: dict[str, Located], connector: Located) -> None:
    lines.add("  kind: kafka", connector)
    servers = options.pop("properties.bootstrap.servers", Located("localhost:9092", connector.line))
    lines.add(f"  servers: {json.dumps(servers.text)}", servers)
    topic = options.pop("topic", None)
    if topic is None or ";" in topic.text:
        what = "'topic-pattern'" if topic is None else f"'topic' = '{topic.text}'"
        raise NoCounterpartError(what, "a definition reads one topic", (topic or connector).line)
    lines.add(f"  topic: {json.dumps(topic.text)}", topic)
    start = options.pop("scan.startup.mode", Located("group-offsets", 0))
    if start.text == "timestamp" and (moment := options.pop("scan.startup.timestamp-millis", None)):
        lines.add(f"  start: {format_instant(int(moment.text))}", moment)
    elif start.text == "specific-offsets" and (offsets := options.pop("scan.startup.specific-offsets", None)):
        pairs = re.findall(r"partition:(\d+),\s*offset:(\d+)", offsets.text)
        lines.add(f"  start: {{{', '.join(f'{partition}: {offset}' for partition, offset in pairs)}}}", offsets)
    else:
        lines.add("  start: earliest", start)
        if start.text != "earliest-offset":
            why = "where the job began is not in the script; the replay reads from the earliest record"
            lines.remark(start.line or connector.line, f"'scan.startup.mode' = '{start.text}'", why)
    settings, secrets = {}, {}
    for name in [name for name in options if name.startswith("properties.")]:
        plain, option = name.removeprefix("properties."), options.pop(name)
        if plain == "group.id":
            lines.remark(option.line, f"'{name}' = '{option.text}'", why_left_out(table, name))
        elif SECRET.search(plain) and "location" not in plain:
            secrets[plain] = "KAFKA_" + re.sub(r"[^A-Z0-9]+", "_", plain.upper())
            lines.remark(option.line, f"'{name}'", f"a secret: put its value into the variable {secrets[plain]}")
        else:
            settings[plain] = option.text
    if settings:
        lines.add(f"  options: {json.dumps(settings)}")
    if secrets:
        lines.add(f"  secrets: {json.dumps(secrets)}")


def _value(lines: Lines, table: SourceTable, options: dict[str, Located], *, is_topic: bool) -> None:
    chosen = options.pop("value.format", None) or options.pop("format", None) or Located("", table.line)
    options.pop("format", None)
    if not is_topic and (PurePath(table.files).suffix.lstrip(".") if table.files else chosen.text) in _TYPED:
        return
    if chosen.text in _CHANGES:
        why = (
            "a job that reads changes takes the old row out of its windows with each update, which has no counterpart; "
            "for a job that counts each change as a record write `value.envelope: debezium` by hand"
        )
        raise NoCounterpartError(f"'format' = '{chosen.text}'", why, chosen.line)
    if chosen.text not in _FORMATS:
        why = "write `value` by hand: json, csv, text, or avro with the writer's schema"
        raise NoCounterpartError(f"'format' = '{chosen.text}'", why, chosen.line)
    for name in [name for name in options if not name.startswith("key.")]:
        if name.endswith(("ignore-parse-errors", "fail-on-missing-field")):
            lines.remark(options.pop(name).line, f"'{name}'", "records that cannot be decoded go to quarantine")
        elif name.endswith("timestamp-format.standard"):
            why = "times as text are read in both formats here; in Flink those of the other one are errors"
            lines.remark(options.pop(name).line, f"'{name}'", why)
    lines.add("value:")
    if is_topic:
        lines.add(f"  format: {_FORMATS[chosen.text]}", chosen)
    if chosen.text == "raw":
        return
    if chosen.text == "avro-confluent":
        _registry(lines, table, options, chosen)
        return
    time = table.watermark.operands[0] if table.watermark is not None else None
    fields, in_key = [], fields_of_key(table) if is_topic else frozenset()
    for column in table.columns:
        if column.metadata is None and column.computed is None and column.name not in in_key:
            is_time = time is not None and column.name == time.names[-1]
            fields.append(f"{quoted(column.name)} {'STRING' if is_time else spark_type(column.type)}")
            if "TIMESTAMP" in column.type and not is_time:
                lines.remark(column.line, f"column {column.name} {column.type}", "a time without zone is read as UTC")
            if "TIME(" in column.type or "MULTISET" in column.type:
                raise NoCounterpartError(f"{column.name} {column.type}", "Spark has no such type", column.line)
    if table.files:
        fields += [f"{quoted(column)} {kind}" for column, kind in _PLACED.values()]
    lines.add(f"  schema: {json.dumps(', '.join(fields))}", table.line)


def _registry(lines: Lines, table: SourceTable, options: dict[str, Located], chosen: Located) -> None:
    """Add the schema registry of the format `avro-confluent`. Raises NoCounterpartError where it has no address."""

    def option(name: str) -> Located | None:
        found = [options.pop(f"{prefix}avro-confluent.{name}", None) for prefix in ("value.", "")]
        return found[0] or found[1]

    url, subject = option("url") or option("schema-registry.url"), option("subject")
    if url is None:
        raise NoCounterpartError(
            "'format' = 'avro-confluent'", "it names no registry (`avro-confluent.url`)", chosen.line
        )
    topic = table.options["topic"]
    lines.add("  registry:")
    lines.add(f"    url: {json.dumps(url.text)}", url)
    name, source = (f"{topic.text}-value", topic) if subject is None else (subject.text, subject)
    lines.add(f"    subject: {json.dumps(name)}", source, "" if subject is not None else "Confluent's default")
    secret = option("basic-auth.user-info")
    if secret is not None:
        lines.add("    auth: {basic: REGISTRY_USER_INFO}", secret)
        why = "a secret: put its value into the variable REGISTRY_USER_INFO"
        lines.remark(secret.line, "'avro-confluent.basic-auth.user-info'", why)


@dataclass(frozen=True, slots=True)
class Timer:
    """When the live job's source started, the settings of the script that need it, and the job's version of Flink."""

    start: str | None
    setting: Callable[[str], Located | None]
    version: str | None = None

    @property
    def ticks_emit_the_last_row(self) -> bool:
        """Whether a tick emits the last row's watermark, not the largest (before FLINK-37025)."""
        if self.version is None:
            return False
        numbers = tuple(int(part) for part in self.version.split("."))
        return numbers < (1, 19) or (1, 19, 0) <= numbers < (1, 19, 2) or numbers == (1, 20, 0)


def add_watermark(lines: Lines, table: SourceTable, time: EventTime, parser: FlinkParser, timer: Timer) -> None:
    """Add `watermark`. Raises NoCounterpartError for a strategy that is no constant delay.

    Flink SQL's watermark is the row's own value of the expression. At each tick of the timer Flink emits the largest
    one; before 1.20.1 that of the last row, unless it would go back.
    """
    assert table.watermark is not None
    strategy, line = table.watermark.operands[1], table.watermark.line
    delay: int | None = None
    if strategy.kind == "IDENTIFIER" and strategy.names[-1] == time.column:
        delay = 0
    elif strategy.kind == "MINUS":
        column, interval = strategy.operands
        if column.kind == "IDENTIFIER":
            delay = parser.milliseconds(interval) if column.names[-1] == time.column else None
    if delay is None:
        why = "a watermark is the event time less a constant: for another one write a custom generator"
        raise NoCounterpartError(f"WATERMARK FOR {time.column} AS {strategy.text}", why, line)
    emit = table.options.get("scan.watermark.emit.strategy", Located("on-periodic", line))
    idle = table.options.get("scan.watermark.idle-timeout") or timer.setting("table.exec.source.idle-timeout")
    interval_setting = timer.setting("pipeline.auto-watermark-interval")
    is_periodic = emit.text == "on-periodic" and timer.start is not None
    lines.add("watermark:")
    if table.options["connector"].text == "filesystem":
        why = (
            "CHECK: of files Flink's watermark comes from behind the source: one for all files that a subtask reads, "
            "and at once when it rises by more than the interval, which is not replayed"
        )
        lines.remark(line, "watermark of files", why)
    if is_periodic and timer.ticks_emit_the_last_row:
        lines.add("  generator: average_of_last", line, "before 1.20.1 a tick emits the last row's watermark")
        lines.add("  last: 1")
    else:
        lines.add("  generator: lag", line, "Flink SQL takes off no further millisecond")
    lines.add(f"  lag: {format_duration(delay)}", line)
    lines.add(f"  emission: {'periodic' if is_periodic else 'per_event'}", emit)
    if timer.start is None and emit.text == "on-periodic":
        why = f"it is emitted per event here, which differs for records near a window's close. {_LATER}"
        lines.remark(line, "periodic watermarks", why)
    needs_timer = is_periodic or (idle is not None and timer.start is not None)
    if needs_timer:
        text = interval_setting.text if interval_setting else "200 ms"
        lines.add(f"  interval: {text}", interval_setting, "" if interval_setting else "Flink's default")
        lines.add(f"  timer_start: {json.dumps(timer.start)}", None, "from --timer-start")
    if idle is not None and idle.text.split()[0] != "0":
        if needs_timer:
            lines.add(f"  idleness: {idle.text}", idle)
        else:
            lines.add(f"  # idleness: {idle.text}", idle, "needs --timer-start")
            lines.remark(idle.line, f"idle timeout {idle.text}", f"idleness is noticed at ticks. {_LATER}")
    for name in ("scan.watermark.alignment.group", "scan.watermark.alignment.max-drift"):
        if option := table.options.get(name):
            why = (
                "CHECK: alignment pauses partitions that are ahead, so that they are read later than here: "
                "the log does not show it"
            )
            lines.remark(option.line, f"'{name}'", why)
    lines.add("  # partitions: [0, 1, 2]", None, "the topic's partitions when the job started")
    lines.add(
        "  # subtasks: [[0, 1], [2]]",
        None,
        "CHECK: which partitions each source subtask reads; left out, one reads all",
    )
    said = "from --flink" if timer.version else "CHECK: the version of the job"
    lines.add(f'  flink: "{timer.version or "2.3"}"', None, said)


_INCLUDE = "value.fields-include"
_WITHOUT_KEY = "EXCEPT_KEY"
_NONE = "has no counterpart"


def fields_of_key(table: SourceTable) -> frozenset[str]:
    """The columns of a topic's table that are in the record's key only, not in its value."""
    include, names = table.options.get(_INCLUDE), table.options.get("key.fields")
    if include is None or names is None or include.text.upper() != _WITHOUT_KEY:
        return frozenset()
    return frozenset(name.strip() for name in names.text.split(";"))


def why_left_out(table: SourceTable, name: str) -> str:
    """What it means that this option of a source table is in no definition."""
    if name.startswith("sink."):
        return "it is about writing, and a definition only reads the table"
    if table.options["connector"].text != "kafka":
        return _NONE
    if name == "properties.group.id":
        return "a replay joins no group: `history.start` says where the job began"
    if name == "scan.parallelism":
        return "how many subtasks the source has: say in watermark.subtasks which partitions each one reads"
    if name.startswith("scan.topic-partition-discovery"):
        return "when the job finds new partitions: name in watermark.partitions those that the topic had at its start"
    if name == _INCLUDE or name.startswith("key."):
        return _why_key(name, ", ".join(sorted(fields_of_key(table))))
    return _NONE


def _why_key(name: str, in_key: str) -> str:
    if not in_key:
        return "the value has these fields too: they are read from there"
    if name == "key.fields":
        return (
            f"CHECK: {in_key}: only in the record's key, so not in value.schema. "
            "Where a query uses them, write an expression over the column `key`, which is the key's text"
        )
    return f"{_NONE}: fields of the record's key are not decoded, see 'key.fields'"


def of_sink(table: SourceTable) -> tuple[str, str]:
    """What a sink table has besides columns, without values that may be secret; and why it is in no definition."""
    connector = table.options.get("connector")
    named = [f"'connector' = '{connector.text}'"] if connector is not None else []
    named += [f"'{name}'" for name in table.options if name != "connector"]
    named += [what for what, _ in table.left_out]
    named += [f"column {column.name} AS {column.computed.text}" for column in table.columns if column.computed]
    named += [f"column {column.name} METADATA" for column in table.columns if column.metadata]
    named += [table.watermark.text] if table.watermark is not None else []
    why = (
        f"{_NONE}: results go to Iceberg tables. "
        "To compare with what the job wrote here, name these files, table or topic under `live:`"
    )
    return f"sink {table.name}: {', '.join(named) or 'its options'}", why
