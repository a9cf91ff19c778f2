"""Corrections into a Kafka topic, in one transaction: upserts, appended rows, or a changelog with Flink's row kinds.

A window of which the topic has a record gets its correction with the same key, into the same partition, and with the
other fields of that record. Each record has the delivery's id in the header `rewindow-delivery`: a process that goes on
after a kill reads from the offsets that the delivery began at whether it has been committed.

A delivery is one transaction of Kafka's own client in Spark's JVM: readers see its records together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.comparison.emitted_topic import AT_PARTITION, KEY_BYTES, VALUE_BYTES
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.corrections.columns import Columns, columns_of
from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.definition.corrections import TimeSpelling, TopicMode
from spark_jobs.definition.live import TopicEmitted, WindowColumns
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.corrections import Delivery, new_name, old_name
from spark_jobs.lakehouse.delivery import CorrectionAction
from spark_jobs.lakehouse.tables import name_hash, start_bounds
from spark_jobs.pins import OffsetRange
from spark_jobs.replay.assign import END, START
from spark_jobs.sources.kafka.admin import client_config, topic_admin
from spark_jobs.sources.kafka.topic import header_map, read_log
from spark_jobs.sources.records.decode import parse_schema
from spark_jobs.spark.gateway import JavaObject, jvm
from spark_jobs.spark.java import java_reason

HEADER = "rewindow-delivery"
"""The header with the id of a record's delivery."""
_REVISION = "rewindow-revision"
_CHECKED_KEYS = 200
_KEY, _VALUE, _AT = "rw_topic_key", "rw_topic_value", "rw_topic_partition"


def open_topic(scope: CorrectionScope, topic: TopicEmitted) -> TopicDestination:
    """The topic, as a destination. Raises DefinitionError where its records cannot be written."""
    where = scope.pipeline.source_of(("corrections",)) or scope.pipeline.name
    columns = columns_of(scope)
    mode = scope.corrections.mode or (scope.live.mode if scope.corrections.is_of(scope.live) else "upsert")
    is_flat = topic.value.envelope is None and topic.key.envelope is None
    if topic.value.format != "json" or topic.key.format not in ("json", "text") or not is_flat:
        raise DefinitionError(
            f"topic {topic.topic} has {topic.value.format} values and {topic.key.format} keys"
            f"{'' if is_flat else ' in an envelope'}; corrections are written as JSON, with keys in JSON or text",
            where,
            "Deliver to a topic of JSON, or as files, under corrections.to.",
        )
    operation = scope.corrections.operation or scope.live.operation
    if mode == "changelog" and (operation is None or "." in operation or "(" in operation):
        raise DefinitionError(
            "a changelog's records are written with the operation in a field, and the definition names none",
            where,
            "Write corrections.operation: the name of the field, or `mode: upsert`.",
        )
    return TopicDestination(scope, topic, columns, mode, operation)


@dataclass
class TopicDestination:
    """A topic that readers read. `operation`: the field with the row kind, in a changelog."""

    scope: CorrectionScope
    topic: TopicEmitted
    columns: Columns
    mode: TopicMode
    operation: str | None
    notes: tuple[str, ...] = ()
    most_rows: ClassVar[int | None] = 100_000
    """The windows of one transaction: Kafka ends one that takes long, and readers wait for it."""

    @cached_property
    def _value_fields(self) -> list[str]:
        return list(parse_schema(self.scope.spark, self.topic.value.ddl or "").names)

    @cached_property
    def _key_fields(self) -> list[str] | None:
        """The fields of the key in JSON; None: the key is text, or there is none."""
        if self.topic.key.format != "json":
            return None
        return list(parse_schema(self.scope.spark, self.topic.key.ddl or "").names)

    @property
    def _is_own(self) -> bool:
        """Whether the topic is the live job's own output, with its records about the same windows."""
        return self.scope.corrections.is_of(self.scope.live)

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """All rows, but deletions in a topic to which rows are only appended."""
        self._check_keys(rows)
        if self.mode != "append":
            return rows, ()
        is_delete = F.col("action") == CorrectionAction.DELETE.value
        left_out = rows.where(is_delete).count()
        if not left_out:
            return rows, ()
        note = (
            f"{left_out:,} windows should not be there, and a topic to which rows are only appended cannot say so: "
            "they are left out"
        )
        return rows.where(~is_delete), (note,)

    def position(self) -> dict[int, int]:
        """The end of each partition."""
        with topic_admin(self.scope.spark, self.topic) as admin:
            return {partition: bounds.latest for partition, bounds in admin.state().partitions.items()}

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """One transaction. One that an earlier process has committed is not repeated."""
        found = self._with_originals(rows).localCheckpoint()  # before the transaction, which may not take long
        name = f"rewindow-{name_hash(self.scope.tables.windows, self.scope.destination)}"
        with transaction(self.scope.spark, self.topic, name) as opened:
            # Only from here on no earlier process can commit any more.
            if is_resumed and self._has(delivery):
                opened.abort()
                return
            opened.send(record for row in found.toLocalIterator() for record in self._records(row, delivery))
            opened.commit()

    def _has(self, delivery: Delivery) -> bool:
        """Whether the topic has committed records of the delivery."""
        since, ends = delivery.since or {}, self.position()
        ranges = [OffsetRange(p, since.get(p, 0), end) for p, end in ends.items() if end > since.get(p, 0)]
        if not ranges:
            return False
        committed = self.topic.model_copy(update={"isolation": "read_committed"})
        log = read_log(self.scope.spark, committed, ranges, headers=True)
        return not log.where(header_map(F.col("headers"))[HEADER] == delivery.id).isEmpty()

    def _emitted(self) -> EmittedRows:
        """The records of the topic, which is the live job's own."""
        spark, scope = self.scope.spark, self.scope
        windows = spark.table(scope.tables.windows).schema
        return EmittedRows(spark, scope.pipeline, {k: windows[k].dataType for k in scope.keys})

    def _with_originals(self, rows: DataFrame) -> DataFrame:
        """The rows of a delivery, their windows in epoch ms, with the topic's last record about each."""
        placed = rows.withColumns({START: F.unix_millis(START), END: F.unix_millis(END)})
        keys = self.scope.keys
        ordered = [F.asc_nulls_first(c) for c in (START, *(f"`{k}`" for k in keys))]
        if not self._is_own:
            none = {_KEY: F.lit(None).cast("binary"), _VALUE: F.lit(None).cast("binary"), _AT: F.lit(None).cast("int")}
            return placed.withColumns(none).repartition(1).sortWithinPartitions(*ordered)
        names = join_columns(keys)
        first, last = start_bounds(rows)
        originals = self._emitted().last_records(TimeRange(first or 0, (last or 0) + 1))
        theirs = _named(with_join_keys(originals, keys)).select(*names, _KEY, _VALUE, _AT)
        found = with_join_keys(placed, keys).join(theirs, names, "left")
        return found.repartition(1).sortWithinPartitions(*ordered)  # a global sort would first sample

    def _records(self, row: Row, delivery: Delivery) -> Iterator[TopicRecord]:
        known = row.asDict()
        headers = {HEADER: delivery.id, _REVISION: str(known["revision"])}
        key = known[_KEY] if known[_AT] is not None else self._built_key(known)
        key, partition = None if key is None else bytes(key), known[_AT]

        def record(name: Any, operation: str) -> TopicRecord:
            value = self._value(known, name, operation)
            return TopicRecord(key, value, partition, headers)

        is_delete = known["action"] == CorrectionAction.DELETE.value
        if self.mode != "changelog":
            yield TopicRecord(key, None, partition, headers) if is_delete else record(new_name, "")
        elif is_delete:
            yield record(old_name, "-D")
        elif known["existed"]:
            yield record(old_name, "-U")
            yield record(new_name, "+U")
        else:
            yield record(new_name, "+I")

    def _value(self, known: Mapping[str, Any], name: Any, operation: str) -> bytes:
        """A record's value: the fields of the window's last record, those with values replaced."""
        spelling = self.scope.corrections.times
        named = own_fields(self.columns, spelling, known)
        fields = None
        if known[_VALUE] is not None:
            fields = _parsed(bytes(known[_VALUE]))
        if fields is None:
            fields = built(self._value_fields, named)
        fields |= {column: known[name(value)] for value, column in self.columns.values.items()}
        if operation and self.operation is not None:
            fields[self.operation] = operation
        return json_text(fields, spelling)

    def _built_key(self, known: Mapping[str, Any]) -> bytes | None:
        """The key of a window that the topic has no record of."""
        named = own_fields(self.columns, self.scope.corrections.times, known)
        if self._key_fields is not None:
            return json_text(built(self._key_fields, named), self.scope.corrections.times)
        text = named.get("key")
        return None if text is None else str(text).encode()

    def _check_keys(self, rows: DataFrame) -> None:
        """Raises DefinitionError where keys of new windows would not be as the live job writes them."""
        if not self._is_own or rows.where(~F.col("existed")).isEmpty():
            return
        emitted = self._emitted()
        for partition, offset, key in emitted.without_bounds().limit(1).collect():
            shown = "no key" if key is None else f"the key {bytes(key).decode('utf-8', 'replace')[:120]}"
            raise DefinitionError(
                f"the live job's record at partition {partition}, offset {offset} ({shown}) is of a window that cannot "
                "be read: one that seems to be missing may be that one",
                f"topic {self.topic.topic}",
                "Correct `live.window`: its columns, its unit, its time zone.",
            )
        for row in _named(emitted.records().limit(_CHECKED_KEYS)).collect():
            known = row.asDict()
            theirs = None if known[_KEY] is None else bytes(known[_KEY])
            ours = self._built_key(known)
            if theirs != ours:
                shown = [("no key" if k is None else k.decode("utf-8", "replace"))[:120] for k in (theirs, ours)]
                raise DefinitionError(
                    f"the live job's record has the key {shown[0]}, and a correction of that window would have "
                    f"{shown[1]}: a reader would take them for two",
                    f"topic {self.topic.topic}",
                    "Name the key's fields in their order under `key.schema`, and how it has times under "
                    "corrections.times.",
                )


def _named(records: DataFrame) -> DataFrame:
    return records.withColumnsRenamed({KEY_BYTES: _KEY, VALUE_BYTES: _VALUE, AT_PARTITION: _AT})


def _parsed(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": 1 / 1000, "ms": 1, "us": 1000}


def time_text(instant: datetime, spelling: TimeSpelling) -> str:
    """A time as Flink's JSON has it: a fraction only where there is one. `instant`: in the zone that is shown."""
    between = " " if spelling in (TimeSpelling.SQL, TimeSpelling.SQL_UTC) else "T"
    text = f"{instant:%Y-%m-%d}{between}{instant:%H:%M:%S}"
    if instant.microsecond:
        text += f".{instant.microsecond:06}".rstrip("0")
    return text + ("Z" if spelling in (TimeSpelling.SQL_UTC, TimeSpelling.ISO_UTC) else "")


def bound_value(milliseconds: int, bound: str, window: WindowColumns, spelling: TimeSpelling) -> int | str:
    """A bound of a window (epoch ms) as the definition says that the live job writes it."""
    if bound == "window_end":
        milliseconds -= window.inclusive_end
    instant = _EPOCH + timedelta(milliseconds=milliseconds)
    if window.time_zone is not None:
        local = instant.astimezone(ZoneInfo(window.time_zone)).replace(tzinfo=UTC)
        milliseconds, instant = round((local - _EPOCH) / timedelta(milliseconds=1)), local
    if window.unit in _UNITS:
        return int(milliseconds * _UNITS[window.unit]) if window.unit != "s" else milliseconds // 1000
    if window.unit == "iso" and window.time_zone is None and spelling in (TimeSpelling.SQL, TimeSpelling.ISO):
        spelling = TimeSpelling.SQL_UTC if spelling is TimeSpelling.SQL else TimeSpelling.ISO_UTC
    return time_text(instant, spelling)


def json_text(fields: Mapping[str, Any], spelling: TimeSpelling) -> bytes:
    """Compact JSON, as Flink writes it; decimals keep their digits, null stays null."""

    def text(value: Any) -> str:
        match value:
            case Decimal():
                return f"{value:f}"
            case datetime():
                return _plain_json(time_text(value, spelling))
            case date():
                return _plain_json(value.isoformat())
            case bytes() | bytearray():
                return _plain_json(value.decode("utf-8", "replace"))
            case Mapping():
                return "{" + ",".join(f"{_plain_json(str(k))}:{text(v)}" for k, v in value.items()) + "}"
            case list() | tuple():
                return "[" + ",".join(map(text, value)) + "]"
            case _:
                return _plain_json(value)

    return text(fields).encode()


def _plain_json(value: str | float | None) -> str:
    """A text, a number, a truth value or null as JSON."""
    return json.dumps(value, ensure_ascii=False)


def own_fields(columns: Columns, spelling: TimeSpelling, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that name a window: its keys, and its bounds (epoch ms in `row`)."""
    fields = {column: row[name] for name, column in columns.keys.items()}
    for bound, column in columns.bounds.items():
        fields[column] = bound_value(row[bound], bound, columns.window, spelling)
    return fields


def built(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `names` in their order; those that are not known are null."""
    return {name: known.get(name) for name in names}


_TIMEOUT = 600_000
"""How long a transaction may take (ms); the brokers' own limit is 15 minutes."""
_CONSUMERS_ONLY = ("group.id", "isolation.level", "auto.offset.reset", "fetch.", "max.partition.fetch", "max.poll")


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record to write. `partition` None: the partition that Kafka chooses by the key. `value` None: a tombstone."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: Mapping[str, str] = field(default_factory=dict)


class Transaction:
    """A producer with a transactional id: whoever has it last fences off all before it, and ends their transaction."""

    def __init__(self, spark: SparkSession, topic: TopicEmitted, transactional_id: str) -> None:
        self._jvm, self._topic = jvm(spark), topic.topic
        packages = self._jvm.org.apache.kafka
        settings = self._jvm.java.util.Properties()
        config = {n: v for n, v in client_config(topic).items() if not n.startswith(_CONSUMERS_ONLY)}
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": str(_TIMEOUT), "linger.ms": "20"}
        for name, value in {**config, **own}.items():
            settings.put(name, str(value))
        serializer = packages.common.serialization.ByteArraySerializer
        self._made: dict[tuple[tuple[str, str], ...], JavaObject] = {}
        self._client: JavaObject = packages.clients.producer.KafkaProducer(settings, serializer(), serializer())

    def begin(self) -> None:
        """Fence off earlier producers: what they have not committed by now is aborted. Then begin."""
        self._client.initTransactions()
        self._client.beginTransaction()

    def send(self, records: Iterable[TopicRecord]) -> None:
        """Send records; readers of committed records do not see them yet."""
        of_record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for one in records:
            headers = self._headers(tuple(one.headers.items()))
            self._client.send(of_record(self._topic, one.partition, None, one.key, one.value, headers))

    def _headers(self, named: tuple[tuple[str, str], ...]) -> JavaObject:
        """Made once for all records that have the same: each call to the JVM takes as long as Kafka's own work."""
        if named not in self._made:
            made = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
            for name, text in named:
                made.add(name, text.encode())
            self._made[named] = made
        return self._made[named]

    def commit(self) -> None:
        """Let readers see all of them. Raises py4j's error with Kafka's reason where one was refused."""
        self._client.commitTransaction()

    def abort(self) -> None:
        self._client.abortTransaction()

    def close(self) -> None:
        self._client.close(self._jvm.java.time.Duration.ofSeconds(5))


@contextmanager
def transaction(spark: SparkSession, topic: TopicEmitted, transactional_id: str) -> Iterator[Transaction]:
    """A transaction that is aborted where the block fails. Raises SourceError with Kafka's reason."""
    opened: Transaction | None = None
    try:
        opened = Transaction(spark, topic, transactional_id)
        opened.begin()
        yield opened
    except (Exception, KeyboardInterrupt) as problem:
        if opened is not None:
            with suppress(Py4JError, PySparkException):  # fenced, or never begun: the brokers abort it
                opened.abort()
        if not isinstance(problem, Py4JError):
            raise
        raise SourceError(
            f"corrections cannot be written: {java_reason(problem)[:300]}",
            f"topic {topic.topic} at {topic.servers}",
            "Check that the brokers are reachable, and that the user may write to the topic in transactions.",
        ) from problem
    finally:
        if opened is not None:
            opened.close()
