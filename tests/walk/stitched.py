"""A walk's records in a topic, and in the Iceberg table that they are moved to."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.walk import plan as s
from tests.walk.definitions import COLUMNS, NAMESPACE
from tests.walk.log import Log
from tests.walk.places import where
from tests.walk.topic import Topic


class Stitched(Topic):
    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.table = f"rewindow.{NAMESPACE}.{name}_past"
        spark.sql(f"CREATE TABLE {self.table} ({COLUMNS}) USING iceberg")

    @property
    def history(self) -> str:
        position = "position: {partition: p, offset: o, arrival: a, arrival_unit: ms}"
        recent = f"{{servers: '{self.broker.servers}', topic: {self.name}, timestamps: producer_time}}"
        return f"{{kind: stitched, past: {{table: {self.table}, {position}}}, recent: {recent}}}"

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        match step:
            case s.Archive():
                new = [r for n, r in after.records.items() if n >= before.archived]
                if new:
                    frame = self.spark.createDataFrame([r.row() for r in new], COLUMNS)
                    frame.coalesce(1).writeTo(self.table).append()
            case s.Trim():
                for partition in (0, 1):
                    ends = [r.offset for r in after.between(0, after.archived - 1) if r.partition == partition]
                    if ends:
                        self.broker.delete_records(self.name, partition, max(o for o in ends if o is not None) + 1)
            case s.Correct():
                for record in [r for n, r in after.records.items() if before.records[n] != r]:
                    values = f"k = '{record.key}', t = {record.time}, v = {record.value}"
                    self.spark.sql(f"UPDATE {self.table} SET {values} WHERE {where([record])}")
            case s.Cut():
                gone = [r for n, r in before.records.items() if n not in after.records]
                if gone:
                    self.spark.sql(f"DELETE FROM {self.table} WHERE {where(gone)}")
                    super().change(step, before, after)
            case _:
                super().change(step, before, after)
