"""The answers to the questions of `rewindow init`: where a history lies, how it is read, its fidelity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from spark_jobs.definition.engine import Engine
from spark_jobs.errors import DefinitionError
from spark_jobs.project.proposal import Disorder, PositionProposal
from spark_jobs.project.sample import Sample
from spark_jobs.project.times import TimeReading, time_reading

FORMS = "a path (data/*.jsonl), hive:DATABASE.TABLE, or kafka://HOST:PORT/TOPIC"
"""The forms that `parse_address` reads."""

_KAFKA = re.compile(r"kafka://([^/]+)/(.+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class SourceKind(StrEnum):
    """Which kind of history it is; the values are those of `history.kind`."""

    FILES = "files"
    HIVE = "hive"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a history lies.

    Attributes:
        kind: Files, a Hive table or a Kafka topic.
        place: A path, glob or URI; the table with its database; or the topic.
        servers: Kafka's bootstrap servers; empty for other kinds.
    """

    kind: SourceKind
    place: str
    servers: str = ""


def parse_address(text: str) -> Address:
    """The address that a person wrote. Raises DefinitionError for one that is none of `FORMS`."""
    text = text.strip()
    if match := _KAFKA.fullmatch(text):
        return Address(SourceKind.KAFKA, match[2], match[1])
    if text.startswith("kafka:"):
        raise DefinitionError(f"{text!r} is not a topic's address", hint="Write kafka://HOST:PORT/TOPIC.")
    if text.startswith("hive:"):
        table = text.removeprefix("hive:").strip("/")
        if not re.fullmatch(r"\w+\.\w+", table):
            raise DefinitionError(f"{text!r} is not a table's address", hint="Write hive:DATABASE.TABLE.")
        return Address(SourceKind.HIVE, table)
    if not text:
        raise DefinitionError("the source is empty", hint=f"Write {FORMS}.")
    return Address(SourceKind.FILES, text)


def within(path: str, project: Path) -> str:
    """A path as a definition in `project` writes it: relative to the project where it lies in it, else absolute."""
    if _SCHEME.match(path):
        return path
    absolute = Path(path).expanduser().absolute()
    try:
        return absolute.relative_to(project.absolute()).as_posix()
    except ValueError:
        return absolute.as_posix()


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that the files of a project need.

    Attributes:
        keys_are_guessed: Whether no flag named the keys.
        position: The fields of `history.position`; empty where none are known, and for a topic.
        watermark: The fields of `watermark` that the questions ask for.
        measured: The field of `watermark` that is what the records that were read would need; empty: none is.
        window: The fields of `window`.
        is_sql: Whether the live job is a query of Flink SQL.
        lateness: `allowed_lateness` as YAML text; None for an engine that has none.
    """

    name: str
    address: Address
    sample: Sample
    event_time: TimeReading
    keys: Mapping[str, str]
    position: Mapping[str, str]
    disorder: Disorder
    engine: Engine
    watermark: Mapping[str, str]
    measured: str
    window: Mapping[str, str]
    lateness: str | None
    aggregates: Mapping[str, str]
    namespace: str
    is_sql: bool = False
    keys_are_guessed: bool = False
    metastore: str | None = None

    @property
    def null_keys(self) -> dict[str, int]:
        """The keys that some of the records do not have, with the number of those records."""
        found = {key: self.sample.find(expression) for key, expression in self.keys.items()}
        return {key: field.nulls for key, field in found.items() if field is not None and field.nulls}

    @property
    def fidelity(self) -> Fidelity:
        """What the history and the engine's own records allow."""
        if self.engine is Engine.SPARK and "checkpoint" in self.watermark:
            return Fidelity("recorded", "the query's checkpoint says in which micro-batch each record was.")
        found = fidelity_of(self.address, self.sample, self.position)
        if self.engine.decides_by_order_alone and found.level == "approximate":
            return Fidelity(
                "log_order", "the order in each partition decides which records were late, and the log has it."
            )
        return found


def position_fields(proposal: PositionProposal, arrival_kind: str) -> dict[str, str]:
    """The fields of `history.position`."""
    fields: dict[str, str] = {}
    if proposal.partition is not None:
        fields["partition"] = proposal.partition.expression
    if proposal.offset is not None:
        fields["offset"] = proposal.offset.expression
    if proposal.arrival is not None:
        reading = time_reading(proposal.arrival)
        if reading is not None:
            fields |= {"arrival": reading.expression, "arrival_unit": reading.unit, "arrival_kind": arrival_kind}
    return fields


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The fidelity level that a history allows, what that means, and what would raise it."""

    level: str
    meaning: str
    advice: str = ""


def fidelity_of(address: Address, sample: Sample, position: Mapping[str, str]) -> Fidelity:
    """The fidelity that `spark_jobs.sources.fidelity` will find, in words for somebody who begins."""
    missing = [name for name in ("partition", "offset", "arrival") if name not in position]
    if address.kind is not SourceKind.KAFKA and missing:
        advice = (
            f"The records have no {', '.join(missing)}. To raise it, let what writes the records keep Kafka's "
            "partition, offset and timestamp of each (Flink and Spark show them as columns), and name the columns "
            "under `position`. Or read the topic itself (kind: kafka), or archive it with `rewindow archive`."
        )
        meaning = "the order of arrival is not known, so only complete values can be computed."
        return Fidelity("complete_only", meaning, advice)
    by_producer = sample.append_time is False or position.get("arrival_kind") == "producer_time"
    if by_producer:
        advice = (
            "The arrival is the producer's time. To raise it for later records, set the topic's message.timestamp.type "
            "to LogAppendTime: then the log holds the broker's clock."
        )
        return Fidelity("approximate", "only the order within a partition is certain.", advice)
    return Fidelity("log_order", "which records were late is decided exactly.")
