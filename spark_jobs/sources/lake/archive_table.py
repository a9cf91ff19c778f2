"""The Iceberg table into which `rewindow archive` writes a topic's records, and which a stitched history reads.

Each archive run adds one snapshot. Its properties name the end offsets of the whole table; so those of the latest such
snapshot count, also after other programs have compacted the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import (
    JAVA_ERRORS,
    loaded_iceberg_table,
)
from spark_jobs.spark.snapshots import snapshots_back

ARCHIVE_MARK = "rewindow.archive"
"""The property of tables that `rewindow archive` has created."""
START_OFFSETS, END_OFFSETS = "rewindow.start_offsets", "rewindow.end_offsets"
TOPIC_ID, BATCH = "rewindow.topic_id", "rewindow.batch"
COLUMNS = (
    "`partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, timestamp_type INT, `key` BINARY, `value` BINARY, "
    "headers ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
)
"""The columns of an archive, as DDL."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive holds.

    Attributes:
        ends: End offsets by partition, exclusive.
        topic_id: Kafka's id of the topic from which the last batch came; None where there is no batch yet.
        batch: The number of the last batch; None where there is none.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    batch: int | None = None

    def to_properties(self) -> dict[str, str]:
        """As the properties of a snapshot or a table."""
        return {END_OFFSETS: offsets_to_json(self.ends), TOPIC_ID: self.topic_id or "", BATCH: str(self.batch)}


def archived_in(spark: SparkSession, table: str, snapshot: int | None = None) -> Archived | None:
    """What the Iceberg table holds at a snapshot (None: the current one); None where it is no archive.

    Where the snapshots of the archive runs have expired, the table's own properties tell it.
    """
    try:
        found = loaded_iceberg_table(spark, table)
    except JAVA_ERRORS:
        return None
    properties = found.properties()
    if properties.get(ARCHIVE_MARK) is None:
        return None
    has_expired = False
    for one in snapshots_back(found, snapshot):
        if (summary := one.summary()).get(END_OFFSETS) is not None:
            return _archived(summary)
        has_expired = one.parentId() is not None and found.snapshot(one.parentId()) is None
    return _archived(properties) if has_expired and properties.get(END_OFFSETS) is not None else Archived()


def _archived(properties: Mapping[str, str]) -> Archived:
    ends = offsets_from_json(str(properties.get(END_OFFSETS)))
    return Archived(ends, properties.get(TOPIC_ID) or None, int(str(properties.get(BATCH))))


def offsets_to_json(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def offsets_from_json(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}
