"""A mark as data. No Spark in this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import DefinitionError


class MarkKind(StrEnum):
    """What kind of mark it is."""

    FLINK_CHECKPOINT = "Flink checkpoint"
    FLINK_SAVEPOINT = "Flink savepoint"
    CONSUMER_GROUP = "consumer group"
    SPARK_CHECKPOINT = "Structured Streaming checkpoint"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a live job had read.

    Attributes:
        kind: What wrote it.
        where: The folder, or the consumer group.
        number: Flink's checkpoint id, or the query's last committed batch; None where it has none.
        at: When it was written, epoch ms; None: nobody knows.
        at_is_of_file: That is when its file was written: the mark itself does not say it.
        offsets: The next offset that is read, by topic and partition.
        notes: What is not known of it, in sentences.
    """

    kind: MarkKind
    where: str
    number: int | None
    at: int | None
    at_is_of_file: bool
    offsets: Mapping[str, Mapping[int, int]]
    notes: tuple[str, ...] = ()

    def ends(self, topic: str) -> dict[int, int]:
        """The end offsets (exclusive) by partition of a topic. Raises DefinitionError where the job did not read it."""
        found = self.offsets.get(topic)
        if not found:
            known = ", ".join(sorted(self.offsets)) or "no topic"
            raise DefinitionError(
                f"the mark has no offsets of the topic {topic}: it has those of {known}", self.where,
                "Name a mark of the job that reads this pipeline's topic.",
            )  # fmt: skip
        return dict(sorted(found.items()))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "where": self.where,
            "number": self.number,
            "at": None if self.at is None else format_instant(self.at),
            "at_is_of_file": self.at_is_of_file,
            "offsets": {
                topic: {str(partition): offset for partition, offset in sorted(found.items())}
                for topic, found in sorted(self.offsets.items())
            },
            "notes": list(self.notes),
        }
