"""Reads emitted rows from a Kafka topic: resolves the offsets once, then decodes values and keys.

| column | type | meaning |
| --- | --- | --- |
| own columns | | `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp`, unless a field has the name |
| the decoded fields | | of key and value; if both have a field, that of the value, unless there is no value |
| `rw_at_partition`, `rw_at_offset` | INT, BIGINT | partition and offset of the row |
| `rw_tombstone` | BOOLEAN | the record has no value |
| `rw_unreadable` | STRING | why it cannot be decoded; null for a good one |
| `rw_key_bytes`, `rw_value_bytes` | BINARY | key and value as they are in the topic |
| `rw_timestamp`, `rw_headers` | | the record's own, whatever a field of that name is |
| `rw_placed` | TIMESTAMP | start of the window, of a row of `<table>__emitted`; null: not known |

Rows that a run has kept come from the table `<table>__emitted`, later ones from the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import LogBound
from spark_jobs.definition.live import Live, TopicEmitted
from spark_jobs.definition.payload import Value
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import SourceError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.emitted_table import HEADERS, NOTHING, Addition, Coverage, EmittedTable, Kept, Offsets
from spark_jobs.lakehouse.tables import name_hash, starts_within
from spark_jobs.pins import OffsetRange, PinnedSchemas, PinnedTopic
from spark_jobs.sources.expressions import refuse, schema_refused
from spark_jobs.sources.kafka.admin import TopicAdmin, TopicState, topic_admin
from spark_jobs.sources.kafka.topic import header_map, read_log
from spark_jobs.sources.records.decode import NOT_UTF8, REASON
from spark_jobs.sources.records.decode_avro import SCHEMA_ID
from spark_jobs.sources.records.payload import decode_bytes, fields_of
from spark_jobs.spark.conditions import any_of

AT_PARTITION, AT_OFFSET = "rw_at_partition", "rw_at_offset"
TOMBSTONE, UNREADABLE = "rw_tombstone", "rw_unreadable"
KEY_BYTES, VALUE_BYTES = "rw_key_bytes", "rw_value_bytes"
PLACED = "rw_placed"
_TIMESTAMP, _HEADERS = "rw_timestamp", "rw_headers"
_BYTES = {"key": KEY_BYTES, "value": VALUE_BYTES}
_RAW = ("key", "value", "headers", "partition", "offset", "timestamp")
_INSTANTS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999, epoch ms: what a TIMESTAMP holds."""


def pin_rows(
    spark: SparkSession, topic: TopicEmitted, path: FieldPath, *, is_upsert: bool, known: Coverage | None = None
) -> tuple[PinnedTopic, tuple[str, ...]]:
    """The offsets to read, and notes about records that the topic has already removed. `known`: what was read before.

    Raises SourceError where the brokers or the topic cannot be reached, a partition has no leader, or the definition
    names a partition or an offset that does not exist.
    """
    where = f"topic {topic.topic} at {topic.servers}"
    notes = []
    with topic_admin(spark, topic) as admin:
        state = admin.state()
        if state.unreachable:
            listed = ", ".join(map(str, state.unreachable))
            raise SourceError(f"partition {listed} has no leader and cannot be read", where, "Wait for its brokers.")
        starts = _bounds(topic.start, "start", state, admin, (*path, "start"), where)
        ends = _bounds(topic.end, "end", state, admin, (*path, "end"), where)
    ranges = []
    for partition, bounds in sorted(state.partitions.items()):
        start, end = starts.get(partition, bounds.latest), ends.get(partition, bounds.earliest)
        if topic.start == "earliest":
            notes += _gone(topic.topic, partition, holding(known, state.topic_id, {}).holes(partition, bounds.earliest))
        ranges.append(OffsetRange(partition, min(start, end), end))
    if state.is_compacted and not is_upsert:
        notes.append(f"topic {topic.topic} is compacted: of the rows with the same topic key, only the last is kept")
    return PinnedTopic(topic.topic, state.topic_id, "producer_time", tuple(ranges)), tuple(notes)


def _bounds(
    requested: LogBound, name: str, state: TopicState, admin: TopicAdmin, path: FieldPath, where: str
) -> dict[int, int]:
    """For each partition its offset; partitions that explicit offsets do not name are left out."""
    partitions = state.partitions
    if isinstance(requested, str):
        return {p: bounds.earliest if name == "start" else bounds.latest for p, bounds in partitions.items()}
    if isinstance(requested, int):
        found = admin.offsets_at(partitions, requested)
        return {p: partitions[p].latest if offset is None else offset for p, offset in found.items()}
    for partition, offset in requested.items():
        hint = f"Correct {dotted(path)}."
        if partition not in partitions:
            raise SourceError(f"the topic has no partition {partition}", where, hint)
        if offset > partitions[partition].latest:
            latest = partitions[partition].latest
            what = f"partition {partition} ends at offset {latest}, before the requested offset {offset}"
            raise SourceError(what, where, hint)
    return {p: max(offset, partitions[p].earliest) for p, offset in requested.items()}


def _gone(topic: str, partition: int, holes: Sequence[Offsets]) -> Iterable[str]:
    for low, high in holes:
        if low == 0:
            what = (
                f"partition {partition} of topic {topic} begins at offset {high}: retention has removed what was before"
            )
        else:
            what = (
                f"retention has removed offsets [{low}, {high}) of partition {partition} of topic {topic} before a run "
                "has read them"
            )
        yield f"{what}, and windows that came out only there count as missing"


def holding(known: Coverage | None, topic_id: str, ends: Mapping[int, int]) -> Coverage:
    """What was read before, if it was this topic, and the topic still has its ends; else nothing."""
    if known is None or known.topic_id != topic_id:
        return Coverage(topic_id=topic_id)
    is_cut = any(known.end(partition) > end for partition, end in ends.items())
    return Coverage(topic_id=topic_id) if is_cut else known


def offsets_shown(pinned: PinnedTopic) -> str:
    """The end offsets in the form of the option `--as-of`: `0=120,1=95`."""
    return ",".join(f"{chosen.partition}={chosen.end}" for chosen in pinned.ranges)


def placing_of(topic: TopicEmitted, pipeline: Pipeline) -> str:
    """A digest of all by which the rows are read and their windows' starts are found."""
    live = pipeline.live
    assert isinstance(live, Live)
    parts = {"topic", "start", "end", "isolation", "key", "value"}
    return name_hash(
        topic.model_dump_json(include=parts, exclude={"key": _added(topic.key), "value": _added(topic.value)}),
        live.window.model_dump_json(),
        pipeline.window.model_dump_json(),
        str(_has_headers(live)),
    )


def _added(value: Value) -> dict[str, Any]:
    """Fields that came later and change nothing here, and where a registry lies."""
    found: dict[str, Any] = {} if value.envelope is not None else {"envelope": True}
    return found | {"registry": True if value.registry is None else {"url": True, "auth": True}}


@dataclass(frozen=True)
class TopicRows:
    """The records of a topic up to its pinned ends: those that a table has kept, and those that only the topic has.

    `table` is None where no run keeps rows, as those of the late output. `kept`: what of it is read; `void`: what the
    table says to have, and the topic has no more. `path`: the topic's place in the definition. `key_schemas` and
    `value_schemas`: those of registries, see `PinnedSchemas`.
    """

    spark: SparkSession
    source: TopicEmitted
    pinned: PinnedTopic
    pipeline: Pipeline
    path: FieldPath
    table: EmittedTable | None = None
    kept: Kept = NOTHING
    void: Coverage | None = None
    key_schemas: PinnedSchemas | None = None
    value_schemas: PinnedSchemas | None = None

    @property
    def ends(self) -> dict[int, int]:
        """The offset by partition up to which the rows go."""
        return {chosen.partition: chosen.end for chosen in self.pinned.ranges}

    @property
    def has_kept(self) -> bool:
        """Whether rows come from the table."""
        return self.kept.snapshot is not None

    def ahead(self) -> tuple[OffsetRange, ...]:
        """The offsets that only the topic has."""
        starts = {chosen: max(chosen.start, self.kept.coverage.end(chosen.partition)) for chosen in self.pinned.ranges}
        return tuple(replace(chosen, start=start) for chosen, start in starts.items() if start < chosen.end)

    def decoded(self, *, only_ahead: bool = False) -> DataFrame:
        """The rows as a lazy frame with the columns that the module lists."""
        log = read_log(self.spark, self.source, self.ahead(), headers=_has_headers(self.pipeline.live))
        if "headers" not in log.columns:
            log = log.withColumn("headers", F.lit(None).cast(HEADERS))
        rows = log.select(*_RAW, F.lit(None).cast("timestamp").alias(PLACED))
        if self.table is not None and self.has_kept and not only_ahead:
            ends = [(F.col("partition") == p) & (F.col("offset") < end) for p, end in self.ends.items()]
            kept = self.table.rows(self.kept).where(any_of(ends))
            stored = kept.select(*_RAW, F.col("window_start").alias(PLACED))
            rows = rows.unionByName(stored) if self.ahead() else stored
        return decoded_rows(rows, self)

    def keep(self, starts: Callable[[DataFrame], Column]) -> TopicRows:
        """Append what only the topic has to the table; the same rows, which come from there.

        `starts` gives the starts of the windows (epoch ms) of decoded rows.
        """
        if self.table is None:
            return self
        topic_id = self.pinned.topic_id

        def addition(now: Kept) -> Addition | None:
            is_void = now.coverage.topic_id != topic_id or now.coverage == self.void
            since = replace(self, kept=NOTHING if is_void else now)
            ranges = since.ahead()
            if not ranges:
                return None
            read = [(chosen.partition, chosen.start, chosen.end) for chosen in ranges]
            rows = _stored(since.decoded(only_ahead=True), starts)
            return Addition(rows, since.kept.coverage.extended(topic_id, read), replaces=is_void)

        return replace(self, kept=self.table.append(addition))


def _stored(rows: DataFrame, starts: Callable[[DataFrame], Column]) -> DataFrame:
    """Decoded rows in the columns of `<table>__emitted`."""
    start = F.when(F.col(UNREADABLE).isNull(), starts(rows))
    first, last = (F.lit(instant) for instant in _INSTANTS)
    return rows.select(
        F.col(AT_PARTITION).alias("partition"),
        F.col(AT_OFFSET).alias("offset"),
        F.col(_TIMESTAMP).alias("timestamp"),
        F.col(KEY_BYTES).alias("key"),
        F.col(VALUE_BYTES).alias("value"),
        F.col(_HEADERS).alias("headers"),
        F.timestamp_millis(F.when(start.between(first, last), start)).alias("window_start"),
    )


def placed_in(spans: Sequence[TimeRange]) -> Column:
    """Whether a row may be of a window that starts in one of `spans`; the table prunes by it."""
    return reduce(or_, (starts_within(span, PLACED) for span in spans), F.col(PLACED).isNull())


def behind(ends: Mapping[int, int]) -> Column:
    """Whether a row lies behind these ends, or in a partition that has none; the table prunes by it."""
    parts = [(F.col(AT_PARTITION) == partition) & (F.col(AT_OFFSET) >= end) for partition, end in ends.items()]
    return reduce(or_, parts, ~F.col(AT_PARTITION).isin(*ends))


def _has_headers(live: object) -> bool:
    return isinstance(live, Live) and "headers" in live.model_dump_json()


def decoded_rows(log: DataFrame, read: TopicRows) -> DataFrame:
    """Raw records with the columns that the module lists."""
    topic = read.source
    rows = log.select(
        F.col("key").alias(_BYTES["key"]),
        F.col("value").alias(_BYTES["value"]),
        F.col("timestamp").alias(_TIMESTAMP),
        F.col("headers").alias(_HEADERS),
        PLACED,
        "key",
        "value",
        header_map(F.col("headers")).alias("headers"),
        F.lit(topic.topic).alias("topic"),
        "partition",
        "offset",
        "timestamp",
        F.col("partition").alias(AT_PARTITION),
        F.col("offset").alias(AT_OFFSET),
        F.col("value").isNull().alias(TOMBSTONE),
    )
    keyed, key_fields = _decoded(rows, topic.key, "key", read, read.key_schemas)
    kept = keyed.withColumns({f"rw_of_key_{i}": F.col(f"`{name}`") for i, name in enumerate(key_fields)})
    both, value_fields = _decoded(kept, topic.value, "value", read, read.value_schemas)
    kinds = {field.name.lower(): field.dataType for field in both.schema if field.name in value_fields}
    # A record without a value has only the fields of its key.
    shared = {
        name: F.when(F.col(TOMBSTONE), F.col(f"rw_of_key_{i}").try_cast(kinds[name.lower()])).otherwise(
            F.col(f"`{name}`")
        )
        for i, name in enumerate(key_fields)
        if name.lower() in kinds
    }
    unreadable = F.when(~F.col(TOMBSTONE), F.col("rw_value_reason"))
    if topic.key.format != "text":
        unreadable = F.coalesce(unreadable, F.concat(F.lit("key: "), F.col("rw_key_reason")))
    drop = ("rw_key_reason", "rw_value_reason", *(f"rw_of_key_{i}" for i in range(len(key_fields))))
    return both.withColumns({**shared, UNREADABLE: unreadable}).drop(*drop)


def _decoded(
    rows: DataFrame, how: Value, part: str, read: TopicRows, schemas: PinnedSchemas | None
) -> tuple[DataFrame, tuple[str, ...]]:
    """`rows` with the fields of their key or value, named; `rw_<part>_reason` says why one cannot be decoded."""
    content = F.col(_BYTES[part])
    text = content.cast("string")
    reason = f"rw_{part}_reason"
    if how.format == "text":
        broken = F.when(~F.is_valid_utf8(text), NOT_UTF8)
        return rows.withColumns({part: F.make_valid_utf8(text), reason: broken}), (part,)
    try:
        fields = fields_of(rows.sparkSession, how, schemas)
    except ValueError as error:
        raise refuse(read.pipeline, (*read.path, part, "schema"), schema_refused(error)) from error
    decoded = decode_bytes(rows, content, how, schemas)
    return decoded.withColumnRenamed(REASON, reason).drop(SCHEMA_ID), tuple(fields.names)
