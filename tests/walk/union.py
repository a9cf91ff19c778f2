"""A walk's records in two places: files have those of partition 0, an Iceberg table has those of partition 1."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.walk import plan as s
from tests.walk.definitions import OF_UNION, union_of
from tests.walk.iceberg import IcebergTable
from tests.walk.log import Log
from tests.walk.places import Files, Place


class Union(Place):
    job = OF_UNION

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.parts = (Files(spark, folder, f"{name}_zero", walk), IcebergTable(spark, folder, f"{name}_one", walk))

    @property
    def history(self) -> str:
        return union_of(self.walk, {name: part.history for name, part in zip(("zero", "one"), self.parts, strict=True)})

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        for number, part in enumerate(self.parts):
            then, now = before.of_partition(number), after.of_partition(number)
            if then.records != now.records or isinstance(step, s.Compact | s.Reload | s.Expire):
                part.change(step, then, now)
