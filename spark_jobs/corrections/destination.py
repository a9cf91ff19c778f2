"""What a destination of corrections is, and which one a definition names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame

from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.definition.live import TableEmitted, TopicEmitted
from spark_jobs.lakehouse.corrections import Delivery


class Destination(Protocol):
    """Takes deliveries. `notes`: sentences for people about what it cannot take."""

    notes: tuple[str, ...]

    most_rows: ClassVar[int | None]
    """The most rows of one delivery; None: as many as there are."""

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows of the table of corrections that it can take, and notes about the others."""
        ...

    def position(self) -> Mapping[int, int] | None:
        """Where it stands before a delivery: a topic's end offset by partition; None for others."""
        ...

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """Take the rows of a delivery, once. `is_resumed`: a process before this one may have brought them already."""
        ...


def open_destination(scope: CorrectionScope) -> Destination:
    """The destination that the definition names. Raises DefinitionError or SourceError where it cannot be used."""
    chosen = scope.corrections.destination(scope.live)
    if isinstance(chosen, TableEmitted):
        from spark_jobs.corrections.tables import open_table

        return open_table(scope, chosen)
    if isinstance(chosen, TopicEmitted):
        from spark_jobs.corrections.topic import open_topic

        return open_topic(scope, chosen)
    from spark_jobs.corrections.files import Files

    return Files(scope, chosen)
