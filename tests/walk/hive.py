"""A walk's records in a Hive table, each arrival in a partition of its own; or in a view of such a table."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tests.walk import plan as s
from tests.walk.definitions import COLUMNS, NAMESPACE, position
from tests.walk.log import Log, Record
from tests.walk.places import Files


class HiveTable(Files):
    """It needs a Spark with a metastore."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.table = f"{NAMESPACE}.{name}_log"
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {NAMESPACE}")
        spark.sql(
            f"CREATE TABLE {self.table} ({COLUMNS}, part STRING) USING json PARTITIONED BY (part) "
            f"LOCATION '{self.data}'"
        )

    @property
    def history(self) -> str:
        return f"{{kind: hive, table: {self.table}, {position(self.walk)}}}"

    def _write(self, name: str, records: Sequence[Record]) -> None:
        part = self.data / f"part={name}"
        self.files[name] = {r.number for r in records}
        if not records:
            self.files.pop(name)
            self.spark.sql(f"ALTER TABLE {self.table} DROP IF EXISTS PARTITION (part = '{name}')")
            shutil.rmtree(part, ignore_errors=True)
            return
        part.mkdir(exist_ok=True)
        (part / "data.json").write_text("".join(json.dumps(r.row()) + "\n" for r in records))
        self.written += 1
        os.utime(part / "data.json", (self.written, self.written))
        self.spark.sql(f"ALTER TABLE {self.table} ADD IF NOT EXISTS PARTITION (part = '{name}')")


class HiveView(HiveTable):
    """The view says what values are: they can be multiplied."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.view = f"{NAMESPACE}.{name}_view"
        self._define("CREATE", 1)

    @property
    def history(self) -> str:
        return f"{{kind: hive, table: {self.view}, {position(self.walk)}}}"

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        if isinstance(step, s.AlterView):
            self._define("ALTER", step.factor)
        else:
            super().change(step, before, after)

    def _define(self, verb: str, factor: int) -> None:
        self.spark.sql(f"{verb} VIEW {self.view} AS SELECT p, o, a, k, t, v * {factor} AS v, i FROM {self.table}")
