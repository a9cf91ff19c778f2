"""Corrections as files: one folder for each delivery, complete where it has the file `_SUCCESS`.

Columns: the keys, `window_start`, `window_end`, `action` (upsert or delete), for each aggregate its new value and
`<a>__old`, and `revision`, `cause`, `run_id`. The folder's name is the delivery's number and id: the same delivery
never lies there twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.definition.corrections import FilesDestination
from spark_jobs.lakehouse.corrections import Delivery, new_name, old_name
from spark_jobs.lakehouse.tables import guarded
from spark_jobs.spark.gateway import hadoop_conf, hadoop_path


@dataclass
class Files:
    """A folder that readers look into."""

    scope: CorrectionScope
    destination: FilesDestination
    notes: tuple[str, ...] = ()
    most_rows: ClassVar[int | None] = None

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        return rows, ()

    def position(self) -> None:
        return None

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """Write the folder, unless it is complete."""
        spark, values = self.scope.spark, self.scope.values
        folder = f"{self.destination.path.rstrip('/')}/{delivery.number:06}-{delivery.id}"
        marker = hadoop_path(spark, f"{folder}/_SUCCESS")
        if is_resumed and marker.getFileSystem(hadoop_conf(spark)).exists(marker):
            return
        chosen = rows.select(
            *(f"`{c}`" for c in self.scope.identity),
            "action",
            *(F.col(f"`{new_name(v)}`").alias(v) for v in values),
            *(f"`{old_name(v)}`" for v in values),
            "revision",
            "cause",
            "run_id",
        ).coalesce(1)
        writer = chosen.write.format(self.destination.format).mode("overwrite")
        if self.destination.format == "csv":
            writer = writer.option("header", True)
        if self.destination.format == "json":
            writer = writer.option("ignoreNullFields", False)
        guarded("cannot write", folder, lambda: writer.save(folder))
