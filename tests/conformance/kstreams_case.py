"""The case format `kstreams-oracle-case/1`: one aggregation, its records, and what real Kafka Streams did with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.kafka_streams.task import Emission, StoreState, Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions, StreamsWindows
from tests.conformance.case_file import CaseFile
from tests.conformance.compare import CHECKSUM_MODULUS

FORMAT = "kstreams-oracle-case/1"
_EMIT_INTERVAL = 1_000


class CaseRecord(NamedTuple):
    """One record of a case, with the columns of the format."""

    partition: int
    offset: int
    append: int
    key: str | None
    timestamp: int
    value: int | None


class Restart(NamedTuple):
    """Before the record number `before`, the tasks of these partitions begin anew, with this state."""

    before: int
    partitions: tuple[int, ...]
    state: StoreState


@dataclass(frozen=True)
class StreamsCase(CaseFile):
    """One case file."""

    @property
    def partitions(self) -> range:
        return range(self.config["partitions"])

    @cached_property
    def records(self) -> list[CaseRecord]:
        return [CaseRecord(*row) for row in self.document["records"]]

    @cached_property
    def restarts(self) -> list[Restart]:
        return [
            Restart(
                restart["before"],
                tuple(restart.get("partitions", self.partitions)),
                self._known(StoreState, restart.get("state", StoreState.LOCAL), "state of a restart"),
            )
            for restart in self.document.get("restarts") or []
        ]

    @cached_property
    def topology(self) -> Topology:
        config = self.config
        try:
            return Topology(
                self._windows,
                config["grace_ms"],
                self._known(Emission, config["emission"], "emission"),
                config.get("retention_ms"),
                config.get("emit_interval_ms", _EMIT_INTERVAL),
            )
        except ValueError as problem:
            raise DefinitionError(str(problem), where=str(self.path), hint="Kafka Streams refuses it too") from problem

    @property
    def _windows(self) -> StreamsWindows:
        window = self.config["window"]
        match window["kind"]:
            case "tumbling":
                return HoppingWindows(window["size"], window["size"])
            case "hopping":
                return HoppingWindows(window["size"], window["advance"])
            case "sliding":
                return BetweenEvents(window["time_difference"])
            case "session":
                return Sessions(window["gap"])
            case other:
                raise self.unknown("window kind", other, "tumbling", "hopping", "sliding", "session")

    def _known(self, kind: Any, value: str, what: str) -> Any:
        if value not in set(kind):
            raise self.unknown(what, value, *kind)
        return kind(value)

    def row(self, record: int, partition: int, key: str, times: Sequence[int], held: Sequence[int] | None) -> list[Any]:
        """A row of the format. `times`: start, end, timestamp; `held`: numbers of records, None withdraws the row."""
        row = [record, partition, key, *times]
        if held is None:
            return [*row, *[None] * 6]
        given = [r for r in (self.records[number] for number in held) if r.value is not None]
        values = [r.value for r in given if r.value is not None]
        squares = (((r.partition + 1) * 1_000_003 + r.offset) % CHECKSUM_MODULUS for r in given)
        return [
            *row,
            len(held),
            sum(values) if values else None,
            min(values, default=None),
            max(values, default=None),
            sum(x * x % CHECKSUM_MODULUS for x in squares) % CHECKSUM_MODULUS,
            sorted(r.offset for r in given) + [None] * (len(held) - len(given)),
        ]


@dataclass(frozen=True)
class StreamsOutcome:
    """What an engine did with a case, in the columns of the format; `note` describes how the engine worked."""

    rows: list[list[Any]] = field(default_factory=list)
    skipped: list[list[int]] = field(default_factory=list)
    ignored: list[list[Any]] = field(default_factory=list)
    waiting: list[list[Any]] = field(default_factory=list)
    note: str = ""


def first_difference(case: StreamsCase, outcome: StreamsOutcome) -> str | None:
    """The first thing that an engine did otherwise than the case records; None if there is none."""
    expected = case.document["expected"]
    columns = expected["row_columns"]
    return (
        _difference("row", columns, expected["rows"], outcome.rows)
        or _difference("skipped", expected["skipped_columns"], expected["skipped"], outcome.skipped)
        or _difference("ignored", ("record", "why"), expected["ignored"], outcome.ignored)
        or _difference("open", columns, expected.get("open", []), outcome.waiting)
        or (f"error: expected {expected['error']}; got none" if expected.get("error") else None)
    )


def _difference(what: str, columns: Sequence[str], wanted: Iterable[list[Any]], got: Iterable[list[Any]]) -> str | None:
    def show(row: list[Any] | None) -> str:
        return "none" if row is None else ", ".join(f"{k}={v}" for k, v in zip(columns, row, strict=False))

    for number, (expected, given) in enumerate(zip_longest(wanted, got)):
        if expected is not None:
            expected = expected[: len(columns)]
        if given is not None:
            given = given[: len(columns)]
        if expected != given:
            return f"{what} {number}: expected {show(expected)}; got {show(given)}"
    return None
