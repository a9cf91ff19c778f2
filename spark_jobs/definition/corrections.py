"""Corrections: where the readers of the live job's output read, and which of the published values they get there."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from spark_jobs.definition.fields import Expression, Section, Text
from spark_jobs.definition.live import Columns, Live, TableEmitted, TopicEmitted, WindowColumns


class CorrectedValue(StrEnum):
    """Which published value is delivered: what the live job's rules give, or what is true now."""

    FAITHFUL = "faithful"
    COMPLETE = "complete"


class TimeSpelling(StrEnum):
    """How times are written in JSON."""

    SQL = "sql"
    SQL_UTC = "sql_utc"
    ISO = "iso"
    ISO_UTC = "iso_utc"


class FilesDestination(Section):
    """A folder of files, for readers that are neither a table nor a topic: one folder for each delivery."""

    kind: Literal["files"] = Field(description="The kind of destination: files.")
    path: Text = Field(
        description="The folder, or its URI. A relative one starts at the project's folder.",
        examples=["data/corrections", "s3a://bucket/corrections"],
    )
    format: Literal["parquet", "json", "csv"] = Field(
        default="json", description="Format of the files; json means JSON lines, csv has a header."
    )


Destination = Annotated[TableEmitted | TopicEmitted | FilesDestination, Field(discriminator="kind")]
TopicMode = Literal["append", "upsert", "changelog"]


class Corrections(Section):
    """What Rewindow delivers to the readers of the live job's output, after a run is published."""

    value: CorrectedValue = Field(
        default=CorrectedValue.FAITHFUL,
        description="faithful: what the live job should have emitted by its own rules. complete: what is true now that "
        "late records have arrived.",
    )
    to: Destination | None = Field(
        default=None,
        description="Where corrections go: a table (Iceberg: MERGE; Hive: its partitions are replaced), a topic, or "
        "files. Left out: to the live job's own output.",
        examples=["{kind: table, table: rewindow.live.departures}", "{kind: files, path: data/corrections}"],
    )
    keys: Columns = Field(
        default={}, description="Column of each key there; left out, as under `live`.", examples=["{carrier: key}"]
    )
    window: WindowColumns | None = Field(
        default=None,
        description="The columns of the window's bounds there; left out, as under `live`.",
        examples=["{start: window_start}"],
    )
    values: Columns = Field(
        default={}, description="Column of each aggregate there; left out, as under `live`.", examples=["{flights: n}"]
    )
    mode: TopicMode | None = Field(
        default=None,
        description="How records are written to a topic: append (a row), upsert (a row, or a null value where a window "
        "goes), changelog (-U and +U, +I, -D in the column `operation`); left out, as under `live`.",
        examples=["upsert"],
    )
    operation: Expression | None = Field(
        default=None,
        description="Field of the operation in a topic with a changelog; left out, as under `live`.",
        examples=["op"],
    )
    times: TimeSpelling = Field(
        default=TimeSpelling.SQL,
        description="How the JSON of a topic has times: sql `2013-02-08 18:00:00` or iso "
        "`2013-02-08T18:00:00`, as in Flink's json.timestamp-format.standard; sql_utc and iso_utc with a Z behind.",
    )

    def destination(self, live: Live) -> TableEmitted | TopicEmitted | FilesDestination:
        """Where corrections go: as written, or to the live job's own output (which is no file then)."""
        chosen = self.to if self.to is not None else live.source
        assert isinstance(chosen, TableEmitted | TopicEmitted | FilesDestination)
        return chosen

    def is_of(self, live: Live) -> bool:
        """Whether corrections go to the output that the comparison reads."""
        if self.to is None:
            return True
        if isinstance(self.to, TableEmitted) and isinstance(live.source, TableEmitted):
            return self.to.table == live.source.table
        if isinstance(self.to, TopicEmitted) and isinstance(live.source, TopicEmitted):
            return (self.to.servers, self.to.topic) == (live.source.servers, live.source.topic)
        return False


def destination_name(destination: TableEmitted | TopicEmitted | FilesDestination) -> str:
    """The name of a destination: in the ledger, in messages and reports."""
    if isinstance(destination, TableEmitted):
        return f"table {destination.table}"
    if isinstance(destination, TopicEmitted):
        return f"topic {destination.topic}"
    return f"files {destination.path}"
