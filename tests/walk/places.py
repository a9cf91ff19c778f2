"""Where a walk's records really lie: each step changes real files and tables so that they hold what the log says."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from tests.walk import plan as s
from tests.walk.definitions import COLUMNS, NAMESPACE, definition, position
from tests.walk.log import Log, Record


class Place(ABC):
    """The history of one walk. `name` is the pipeline's. `value`: how values are decoded, where no column has them."""

    value: ClassVar[str | None] = None
    job: str | None = None

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        self.spark, self.folder, self.name, self.walk = spark, folder, name, walk
        self.regions = f"rewindow.{NAMESPACE}.{name}_regions"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS rewindow.{NAMESPACE}")
        if walk.shape is s.Shape.LOOKUP:
            self._write_regions(Log())

    def pipeline(self, redefined: int) -> Pipeline:
        """The pipeline over the history; `redefined`: how often its definition has changed."""
        return definition(
            self.walk,
            self.name,
            self.history,
            self.folder,
            regions=self.regions,
            value=self.value,
            job=self.job,
            redefined=redefined,
        )

    @property
    @abstractmethod
    def history(self) -> str:
        """The definition's section, in YAML."""

    @abstractmethod
    def change(self, step: s.Step, before: Log, after: Log) -> None:
        """Make the history hold what the log `after` the step says."""

    def take(self, step: s.Step, before: Log, after: Log) -> None:
        """Carry out a step that is no run."""
        if isinstance(step, s.Move):
            self._write_regions(after)
        else:
            self.change(step, before, after)

    def _write_regions(self, log: Log) -> None:
        rows = ", ".join(f"('{key}', '{region}')" for key, region in sorted(log.regions.items()))
        self.spark.sql(
            f"CREATE OR REPLACE TABLE {self.regions} USING iceberg AS SELECT * FROM VALUES {rows} AS t(k, region)"
        )


class Files(Place):
    """JSON files: each arrival is a file of its own, and what changes is written again."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.data = folder / name
        self.data.mkdir()
        self.files: dict[str, set[int]] = {}
        self.written = 0

    @property
    def history(self) -> str:
        return f"{{kind: files, path: {self.data}/*.json, format: json, {position(self.walk)}}}"

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        if isinstance(step, s.AnotherLog | s.Reload | s.Compact):
            self._new_files(after)
            return
        known = set[int]().union(*self.files.values())
        if new := after.records.keys() - known:
            self.files[f"part-{len(self.files):03}-{self.written}.json"] = set(new)
        for name, numbers in list(self.files.items()):
            was = [before.records[n] for n in sorted(numbers & before.records.keys())]
            now = [after.records[n] for n in sorted(numbers & after.records.keys())]
            if was != now:
                self._write(name, now)

    def _new_files(self, log: Log) -> None:
        for name in list(self.files):
            self._write(name, [])
        self._write(f"whole-{self.written}.json", list(log.records.values()))

    def _write(self, name: str, records: Sequence[Record]) -> None:
        file = self.data / name
        self.files[name] = {r.number for r in records}
        if not records:
            self.files.pop(name)
            file.unlink(missing_ok=True)
            return
        file.write_text("".join(json.dumps(r.row()) + "\n" for r in records))
        self.written += 1
        os.utime(file, (self.written, self.written))  # no two versions of a file have one time


class LakeTable(Place):
    """A table with snapshots. Subclasses say how it does what SQL has no common words for."""

    table: str

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.snapshots: list[int] = []
        """For each log of `Log.before`, the snapshot that held it."""
        self.columns = COLUMNS

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        snapshot = self.snapshot()
        self._carry_out(step, before, after)
        if len(after.before) == len(before.before) + 1:
            self.snapshots.append(snapshot)
        elif not after.before:
            self.snapshots = []

    @abstractmethod
    def snapshot(self) -> int:
        """The id of the current snapshot."""

    def _carry_out(self, step: s.Step, before: Log, after: Log) -> None:
        new = [r for n, r in after.records.items() if n not in before.records]
        match step:
            case s.Arrive() | s.Deliver() | s.PutBack():
                self.append(new)
            case s.FastForward():
                self.fast_forward(new)
            case s.Correct(how=how):
                self.correct([r for n, r in after.records.items() if before.records[n] != r], how, after)
            case s.Remove() | s.Cut():
                self.delete([r for n, r in before.records.items() if n not in after.records])
            case s.AnotherLog(how=how) | s.Reload(how=how):
                self.write_anew(list(after.records.values()), how)
            case s.Compact():
                self.compact()
            case s.Expire():
                self.expire()
            case s.RollBack(changes):
                if before.before:
                    self.roll_back(self.snapshots[-min(changes, len(before.before))])
            case s.NewColumn(drops):
                self.new_column(drops)
            case _:
                pass

    def correct(self, records: Sequence[Record], how: s.How, log: Log) -> None:
        match how:
            case s.How.DELETE_INSERT:
                self.delete(records)
                self.append(records)
            case s.How.OVERWRITE:
                self.overwrite_parts(records, log)
            case _:
                for record in records:
                    self.sql(
                        f"UPDATE {self.table} SET k = '{record.key}', t = {record.time}, v = {record.value} "
                        f"WHERE {where([record])}"
                    )

    def write_anew(self, records: Sequence[Record], how: s.How) -> None:
        match how:
            case s.How.TRUNCATE:
                self.sql(f"DELETE FROM {self.table}")
                self.append(records)
            case s.How.REPLACE:
                self.replace(records)
            case _:
                self.overwrite_all(records)

    def delete(self, records: Sequence[Record]) -> None:
        if records:
            self.sql(f"DELETE FROM {self.table} WHERE {where(records)}")

    def frame(self, records: Sequence[Record]) -> DataFrame:
        return self.spark.createDataFrame([r.row() for r in records], COLUMNS).coalesce(1)

    def sql(self, text: str) -> None:
        self.spark.sql(text)

    @abstractmethod
    def append(self, records: Sequence[Record]) -> None: ...

    @abstractmethod
    def overwrite_parts(self, records: Sequence[Record], log: Log) -> None:
        """Write whole partitions of the table again, in which the records lie."""

    @abstractmethod
    def overwrite_all(self, records: Sequence[Record]) -> None: ...

    @abstractmethod
    def replace(self, records: Sequence[Record]) -> None:
        """Create the table again in one statement."""

    @abstractmethod
    def compact(self) -> None: ...

    @abstractmethod
    def expire(self) -> None: ...

    @abstractmethod
    def roll_back(self, snapshot: int) -> None: ...

    @abstractmethod
    def new_column(self, drops: bool) -> None: ...

    def fast_forward(self, records: Sequence[Record]) -> None:
        """What comes over a branch; where tables have none, it is appended."""
        self.append(records)


def where(records: Sequence[Record]) -> str:
    """The condition that selects these records; those of a partition that follow one another are one range."""
    ranges: dict[int | None, list[tuple[int, int]]] = {}
    for r in sorted(records, key=lambda r: (r.partition or 0, r.offset or 0)):
        offset, own = r.offset or 0, ranges.setdefault(r.partition, [])
        if own and own[-1][1] == offset - 1:
            own[-1] = (own[-1][0], offset)
        else:
            own.append((offset, offset))
    parts = [f"p = {p} AND o BETWEEN {a} AND {b}" for p, own in ranges.items() if p is not None for a, b in own]
    unplaced = [f"o IS NULL AND i = {r.id}" for r in records if r.partition is None]
    return " OR ".join(f"({part})" for part in (*parts, *unplaced))
