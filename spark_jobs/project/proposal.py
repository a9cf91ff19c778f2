"""What a definition could say, from a few records: event time, keys, position in the log, out-of-orderness.

Every proposal is a guess from names and values. A person confirms it; what the records show is said beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.definition.names import RESERVED_COLUMNS
from spark_jobs.project.sample import Field, FieldKind, Sample, at
from spark_jobs.project.times import TimeReading, time_reading

_PARTITION = ("kafka_partition", "log_partition", "partition", "_partition", "partition_id", "source_partition")
_OFFSET = ("kafka_offset", "log_offset", "offset", "_offset", "source_offset")
_ARRIVAL = (
    *("arrival", "arrived_at", "arrival_time", "append_time", "appended_at", "log_append_time", "broker_time"),
    *("kafka_timestamp", "kafka_time", "_timestamp", "ingested_at", "ingest_time", "received_at", "timestamp"),
)
_BROKERS_CLOCK = re.compile(r"append|arriv|broker")
_NO_EVENT_TIME = re.compile(r"arriv|append|ingest|receiv|kafka|broker|load|process|insert|updated", re.IGNORECASE)
_EVENT_TIME = re.compile(r"event|occur|happen|creat|order|start|sched|observ|measur|click|trans", re.IGNORECASE)
_KEY = re.compile(r"(^|_)(id|key|code|name|type|country|region|city|store|shop|device|carrier|user|customer|account)$")
_NO_SUM = re.compile(
    r"(^|_)(ids?|keys?|codes?|no|nr|num|number|seq|sequence|version|revision|year|month|day|hour|zip|postcode|port|phone|"
    r"lat|lon|lng|latitude|longitude|status|level|lsn|pos|row|offset|partition|date|week|weekday|priority|rank|"
    r"index|flag|pid|ts|epoch)$"
)
_AVERAGED = re.compile(
    r"temp|price|rate|ratio|rating|percent|pct|score|speed|humidity|pressure|voltage|average|avg|mean|(^|_)(age|stars)$"
)
_NICE_BOUNDS_S = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MAX_SUMS = 3


@dataclass(frozen=True, slots=True)
class PositionProposal:
    """The fields with a record's position in the log; None for each that the records do not have.

    `is_broker_time`: whether the arrival's name says that it is the broker's clock.
    """

    partition: Field | None
    offset: Field | None
    arrival: Field | None
    is_broker_time: bool

    @property
    def is_complete(self) -> bool:
        """Whether the order of the log is known."""
        return None not in (self.partition, self.offset, self.arrival)


def propose_position(sample: Sample) -> PositionProposal:
    """The fields that are named as a position and whose values can be one."""
    partition = _named(sample, _PARTITION, lambda field: field.kind is FieldKind.INTEGER and not field.nulls)
    offset = _named(sample, _OFFSET, lambda field: field.kind is FieldKind.INTEGER and not field.nulls)
    names = _ARRIVAL if partition and offset else tuple(name for name in _ARRIVAL if name != "timestamp")
    arrival = _named(sample, names, lambda field: time_reading(field) is not None and not field.nulls)
    if offset is not None and partition is None:
        offset = None
    is_broker = arrival is not None and bool(_BROKERS_CLOCK.search(arrival.name))
    return PositionProposal(partition, offset, arrival, is_broker)


def _named(sample: Sample, names: Sequence[str], fits: Callable[[Field], bool]) -> Field | None:
    by_name = {field.name.lower(): field for field in reversed(sample.fields)}
    return next((by_name[name] for name in names if name in by_name and fits(by_name[name])), None)


def event_times(sample: Sample, position: PositionProposal) -> list[tuple[Field, TimeReading]]:
    """The fields that can be the event time, the likeliest first."""
    taken = {field.path for field in (position.partition, position.offset, position.arrival) if field}
    found = [
        (field, reading) for field in sample.fields if (reading := time_reading(field)) and field.path not in taken
    ]
    return sorted(found, key=lambda pair: _unlikely(pair[0], sample))


def _unlikely(field: Field, sample: Sample) -> tuple[bool, bool, float]:
    of_log = field.path[0] in sample.log_columns or bool(_NO_EVENT_TIME.search(field.name))
    return of_log, not _EVENT_TIME.search(field.name), field.nulls / max(1, len(sample.records))


def key_fields(sample: Sample, taken: Iterable[tuple[str, ...]]) -> list[Field]:
    """The fields that can be keys, the likeliest first: texts and integers that repeat, and are no times."""
    excluded = set(taken)
    found = []
    for field in sample.fields:
        repeats = 2 <= field.distinct <= max(2, 0.5 * len(field.values))
        is_kind = field.kind is FieldKind.TEXT or (field.kind is FieldKind.INTEGER and _KEY.search(_snake(field.name)))
        envelope = field.path[0] in sample.log_columns and field.name != "key"
        if repeats and is_kind and not envelope and field.path not in excluded and time_reading(field) is None:
            found.append(field)
    return sorted(found, key=lambda field: (not _KEY.search(_snake(field.name)), len(field.path), field.distinct))


def is_averaged(field: Field) -> bool:
    """Whether a sum of the field means nothing, and an average does."""
    return bool(_AVERAGED.search(_snake(field.name)))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_numbering(field: Field) -> bool:
    """Whether the values number the records: whole, all different, and one after another."""
    if field.kind is not FieldKind.INTEGER or len(field.values) < _ENOUGH:
        return False
    values = [int(value) for value in field.values]
    return len(set(values)) == len(values) and max(values) - min(values) < 4 * len(values)


_ENOUGH = 20


def summable_fields(sample: Sample, taken: Iterable[tuple[str, ...]]) -> list[Field]:
    """Numbers whose sum or average may mean something: no ids, no times, no envelope; at most three."""
    excluded = set(taken)
    found = [
        field
        for field in sample.fields
        if field.kind in (FieldKind.INTEGER, FieldKind.NUMBER)
        and field.path not in excluded
        and field.path[0] not in sample.log_columns
        and time_reading(field) is None
        and not _KEY.search(_snake(field.name))
        and not _NO_SUM.search(_snake(field.name))
        and not _is_numbering(field)
    ]
    return found[:_MAX_SUMS]


def column_name(field: Field, taken: Iterable[str] = (), suffix: str = "") -> str:
    """A name for a result column from a field's name, none of Rewindow's own and none that is taken."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", field.name).strip("_").lower() or "value"
    plain = f"c_{plain}" if plain[0].isdigit() or plain.startswith("rw_") else plain
    used = {name.lower() for name in taken} | RESERVED_COLUMNS
    whole = "_".join(re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower() for name in field.path)
    candidates = itertools.chain(
        [plain + suffix, whole + suffix], (f"{plain}{suffix}_{number}" for number in itertools.count(2))
    )
    return next(name for name in candidates if name not in used)


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far event times lay behind the latest one before them, in the order of the log or else of the files (ms).

    `largest` is the largest distance, `share` the share of records that lay behind at all.
    """

    largest: int
    share: float
    in_log_order: bool

    @property
    def bound(self) -> int:
        """A round out-of-orderness bound (ms) that covers all of the records that were read."""
        wanted = self.largest / 1000
        return 1000 * next((bound for bound in _NICE_BOUNDS_S if bound >= wanted), _NICE_BOUNDS_S[-1])


def disorder(sample: Sample, field: Field, reading: TimeReading, position: PositionProposal) -> Disorder:
    """How far the records are out of order, over the partitions of the log one by one."""
    rows: list[tuple[int, int, int]] = []
    for number, record in enumerate(sample.records):
        value = at(record, field.path)
        time = None if value is None else reading.to_ms(value)
        if time is None or not reading.bounds.holds(time):
            continue
        if position.partition and position.offset:
            rows.append((at(record, position.partition.path), at(record, position.offset.path), time))
        elif "offset" in sample.log_columns:
            rows.append((record["partition"], record["offset"], time))
        else:
            rows.append((0, number, time))
    largest, behind = 0, 0
    latest: dict[int, int] = {}
    for partition, _, time in sorted(rows, key=lambda row: row[:2]):
        before = latest.get(partition, time)
        largest = max(largest, before - time)
        behind += time < before
        latest[partition] = max(before, time)
    known = bool(position.partition and position.offset) or "offset" in sample.log_columns
    return Disorder(largest, behind / max(1, len(rows)), known)
