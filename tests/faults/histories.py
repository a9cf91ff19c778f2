"""State machines over histories that change: files, partitions of a Hive table, a topic; nights and full runs.

After each run the published windows are compared with what the history holds now: a window all of whose records are
there has their count and sum; one that lacks records has what it had; a refused run has changed nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import EmptyRangeError, HistoryError, SourceError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import HISTORY_GONE
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.gateway import loaded_iceberg_table
from tests.faults.machine import Machine
from tests.kafka import Sent, produce
from tests.runs.small_runs import MINUTE, T0, definition_text, write

WINDOWS = 4
CHANGES = 4
"""Between two runs the history changes so often at least: changes are quick, runs are not."""

Record = dict[str, Any]
Place = tuple[int, int]
"""Partition and offset."""
Cell = tuple[str, int]
"""A key and a window's start (epoch ms)."""

ROLLING = {"segment.ms": "1"}
"""Settings of a topic: each batch begins another segment."""
times = st.lists(st.integers(0, WINDOWS * 60 - 1), min_size=1, max_size=6)
numbers = st.integers(0, 100)


class HistoryLives(Machine):
    """One pipeline, its history, and what was published of it."""

    def __init__(self) -> None:
        super().__init__()
        self.name = f"{type(self).__name__.lower()}_{next(self.count)}"
        self.version = 0
        self.pipeline = self._load()
        self.ends = [0, 0]
        self.seen: dict[Cell, set[Place]] = {}
        """The records that the published windows were made of, and those that came for them later."""
        self.changed = 0
        """How often the history has changed since the last run."""
        self.runs = 0
        self.last: dict[Cell, tuple] = {}
        """What the last run has published, whatever a stranger has done to it since."""
        self.is_meant = False
        """Whether somebody has said that another log may take the place of all that is published."""

    # What a kind of history says.

    def _load(self) -> Pipeline:
        """The pipeline with the definition of the number `version`."""
        raise NotImplementedError

    def _records(self) -> list[Record]:
        """The records that are there now."""
        raise NotImplementedError

    def _may_refuse(self, why: str) -> bool:
        """Whether a run is right to refuse the history as it is."""
        raise NotImplementedError

    def did(self, what: str) -> None:
        super().did(what)
        self.changed += 1

    def _new(self, seconds: list[int]) -> list[Record]:
        records = []
        for n in seconds:
            partition = n % 2
            arrival = T0 + WINDOWS * MINUTE + (self.ends[0] + self.ends[1]) * 1000
            records.append(
                {
                    "p": partition,
                    "o": self.ends[partition],
                    "a": arrival,
                    "k": "ab"[n % 3 == 0],
                    "t": T0 + n * 1000,
                    "v": n,
                }
            )
            self.ends[partition] += 1
        return records

    # Definitions, people, and a stranger.

    @precondition(lambda self: self.seen)
    @rule()
    def mean_another_log(self) -> None:
        """It counts for the next full run."""
        self.did("what is there may take the place of all that is published")
        self.is_meant = True

    @rule(version=st.integers(0, 2))
    def change_the_definition(self, version: int) -> None:
        """Or take the change back. The runs that follow give other sums."""
        self.did(f"definition {version}")
        self.version = version
        self.pipeline = self._load()

    @precondition(lambda self: self.seen)
    @rule(what=st.sampled_from(["delete", "roll back", "expire"]), key=st.sampled_from("ab"))
    def disturb(self, what: str, key: str) -> None:
        """Somebody who knows nothing of Rewindow changes the published table."""
        table = Tables.of(self.pipeline).windows
        java = loaded_iceberg_table(self.spark, table)
        if what == "delete":
            self.spark.sql(f"DELETE FROM {table} WHERE k = '{key}'")
        elif what == "roll back":
            parent = java.currentSnapshot().parentId()
            if parent is None or java.snapshot(parent) is None:
                return
            java.manageSnapshots().rollbackTo(parent).commit()
        else:
            java.expireSnapshots().expireOlderThan(round(time.time() * 1000)).retainLast(1).commit()
        self.did(f"a stranger: {what} {key}")

    # Runs.

    @invariant()
    def run(self) -> None:
        """No rule: Hypothesis leaves some rules out of each example."""
        if self.changed < CHANGES or (self.is_plain and self.runs):
            return
        self.runs += 1
        kind = "night" if self.runs % 3 else "full run"
        before = self._published()
        try:
            result = self._night() if kind == "night" else self._full_run()
        except (EmptyRangeError, HistoryError, SourceError) as refused:
            self.did(f"{kind} refused: {refused}")
            self.changed = 0
            assert self._may_refuse(str(refused)), self.story
            assert self._published() == before, self.story
            return
        self.did(f"{kind}: {result.note}")
        self.changed = 0
        self._has_run(kind)
        self._compare(self.last, self._published(), result.note)

    def _night(self) -> RunResult:
        return reconcile(self.spark, self.pipeline, NoProgress())

    def _full_run(self) -> RunResult:
        with planned_records(self.spark, self.pipeline, another_log=self.is_meant) as (plan, records):
            result = execute(self.spark, self.pipeline, plan, NoProgress(), records=records)
        self.is_meant = False
        if plan.another_log:
            self._took_the_place()
        return result

    def _took_the_place(self) -> None:
        self.seen = {}

    def _has_run(self, kind: str) -> None:
        """What a run that was not refused says of the history."""

    def _compare(self, before: dict[Cell, tuple], after: dict[Cell, tuple], note: str) -> None:
        there = self._there()
        for cell, places in there.items():
            self.seen.setdefault(cell, set()).update(places)
        for cell, seen in self.seen.items():
            records = [there[cell][place] for place in sorted(seen & there.get(cell, {}).keys())]
            if len(records) == len(seen):
                value = (len(records), sum(r["v"] for r in records) + self.version)
                assert after[cell][:2] == value and after[cell][2] != HISTORY_GONE, (cell, self.story)
                assert after[cell][3] == len(records), (cell, self.story)
            elif cell in before:
                assert after[cell][:2] == before[cell][:2], (cell, self.story)
                if after[cell][2] == HISTORY_GONE != before[cell][2]:
                    assert "keep" in note and HISTORY_GONE in note, self.story
        assert after.keys() == self.seen.keys(), self.story
        self.last = after

    def _there(self) -> dict[Cell, dict[Place, Record]]:
        found: dict[Cell, dict[Place, Record]] = {}
        for r in self._records():
            start = T0 + (r["t"] - T0) // MINUTE * MINUTE
            found.setdefault((r["k"], start), {})[r["p"], r["o"]] = r
        return found

    def _published(self) -> dict[Cell, tuple]:
        """By window: count, sum, state, and how many records it counts."""
        table = Tables.of(self.pipeline).windows
        if not self.spark.catalog.tableExists(table):
            return {}
        counts = ("records_on_time", "records_late", "records_dropped")
        rows = self.spark.table(table).select("k", "window_start", "n__complete", "total__complete", "state", *counts)
        return {
            (r["k"], round(r["window_start"].timestamp() * 1000)): (
                r["n__complete"],
                r["total__complete"],
                r["state"],
                sum(r[name] for name in counts),
            )
            for r in rows.collect()
        }


class FileLives(HistoryLives):
    """Files arrive, late, twice, written again with other values; they are removed, put back, and merged into one."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, list[Record]] = {}
        self.held: dict[str, list[Record]] = {}
        self.removed: dict[str, list[Record]] = {}
        self.written = 0
        self.read: set[str] = set()
        """The files that were there at the last run."""

    def _load(self) -> Pipeline:
        self.data = self.folder / self.name
        text = definition_text(self.name, self.data, threshold="50 %").replace("sum(v)", f"sum(v) + {self.version}")
        return load_pipeline(self.folder / f"{self.name}.yaml", text=text.replace("run_tests", "history_lives"))

    def _records(self) -> list[Record]:
        return [*itertools.chain.from_iterable(self.files.values())]

    def _may_refuse(self, why: str) -> bool:
        return self._is_twice() or ("another one" in why and not self.read & self.files.keys())

    def _has_run(self, kind: str) -> None:
        assert not self._is_twice(), self.story
        self.read = set(self.files)

    def _put(self, name: str, records: list[Record]) -> None:
        self.files[name] = records
        self._write(name, records)

    def _write(self, name: str, records: list[Record]) -> None:
        write(self.data, records, name)
        self._stamp(self.data / name)

    def _stamp(self, file: Any) -> None:
        """No two files of one name and size have one time, as on a disk whose clock is coarse."""
        self.written += 1
        os.utime(file, (self.written, self.written))

    def _take(self, name: str) -> list[Record]:
        self._remove(name)
        return self.files.pop(name)

    def _remove(self, name: str) -> None:
        (self.data / name).unlink()

    def _is_twice(self) -> bool:
        places = [(r["p"], r["o"]) for r in self._records()]
        return len(places) != len(set(places))

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self.count)}.json"

    @initialize(seconds=times)
    def begin(self, seconds: list[int]) -> None:
        self._put("file-0.json", self._new([*seconds, 0, 61]))

    @rule(seconds=times)
    def arrive(self, seconds: list[int]) -> None:
        self.did(f"arrive {seconds}")
        self._put(self._name("file"), self._new(seconds))

    @rule(seconds=times)
    def hold_back(self, seconds: list[int]) -> None:
        self.did(f"hold back {seconds}")
        self.held[self._name("late")] = self._new(seconds)

    @precondition(lambda self: self.held)
    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        name = sorted(self.held)[number % len(self.held)]
        self.did(f"deliver {name}")
        self._put(name, self.held.pop(name))

    @precondition(lambda self: self.files)
    @rule(number=numbers)
    def load_twice(self, number: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self.did(f"load {name} twice")
        self._put(self._name("again"), [dict(r) for r in self.files[name]])

    @precondition(lambda self: self._is_twice())
    @rule()
    def remove_what_is_twice(self) -> None:
        self.did("remove what is twice")
        for name in [name for name in self.files if name.startswith("again-")]:
            others = {(r["p"], r["o"]) for other, rs in self.files.items() if other != name for r in rs}
            if all((r["p"], r["o"]) in others for r in self.files[name]):
                self._take(name)

    @precondition(lambda self: self.files)
    @rule(number=numbers, by=st.integers(1, 9))
    def write_again(self, number: int, by: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self.did(f"write {name} again")
        self._put(name, [r | {"v": r["v"] + by} for r in self.files[name]])

    @precondition(lambda self: self.files and not self._is_twice())
    @rule(number=numbers, kept=st.integers(1, 3))
    def write_fewer(self, number: int, kept: int) -> None:
        """A file or partition is written again without some of its records."""
        name = sorted(self.files)[number % len(self.files)]
        self.did(f"write {name} again with {kept} records")
        self._put(name, self.files[name][:kept])

    @precondition(lambda self: len(self.files) > 1)
    @rule(number=numbers)
    def remove(self, number: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self.did(f"remove {name}")
        self.removed[name] = self._take(name)

    @precondition(lambda self: self.removed)
    @rule()
    def put_back(self) -> None:
        self.did(f"put back {sorted(self.removed)}")
        for name in sorted(self.removed):
            self._put(name, self.removed.pop(name))

    @precondition(lambda self: len(self.files) > 1 and not self._is_twice() and not self.removed)
    @rule()
    def merge(self) -> None:
        """As a compaction job does."""
        self.did(f"merge {sorted(self.files)}")
        records = [r for name in sorted(self.files) for r in self._take(name)]
        self._put(self._name("merged"), records)

    @property
    def story(self) -> str:
        files = json.dumps({n: [[r["p"], r["o"], r["t"] - T0] for r in rs] for n, rs in self.files.items()})
        return f"{super().story}\n{files}"


class PartitionLives(FileLives):
    """The same of a Hive table: each file is a partition. A partition can also lose its folder."""

    columns = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()

    def _load(self) -> Pipeline:
        self.data = self.folder / self.name
        self.table = f"history_lives.{self.name}"
        self.spark.sql("CREATE DATABASE IF NOT EXISTS history_lives")
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.table} ({self.columns}, part STRING) USING json PARTITIONED BY (part) "
            f"LOCATION '{self.data}'"
        )
        text = definition_text(self.name, "unused", threshold="50 %").replace("run_tests", "history_lives")
        text = text.replace("sum(v)", f"sum(v) + {self.version}")
        start, end = text.index("history:"), text.index("keys:")
        position = "position: {partition: p, offset: o, arrival: a, arrival_unit: ms}"
        text = f"{text[:start]}history: {{kind: hive, table: {self.table}, {position}}}\n{text[end:]}"
        return load_pipeline(self.folder / f"{self.name}.yaml", text=text)

    def _write(self, name: str, records: list[Record]) -> None:
        part = self.data / f"part={name}"
        part.mkdir(parents=True, exist_ok=True)
        write(part, records, "data.json")
        self._stamp(part / "data.json")
        self.spark.sql(f"ALTER TABLE {self.table} ADD IF NOT EXISTS PARTITION (part = '{name}')")
        self.lost.discard(name)

    def _remove(self, name: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} DROP IF EXISTS PARTITION (part = '{name}')")
        shutil.rmtree(self.data / f"part={name}", ignore_errors=True)
        self.lost.discard(name)

    def _may_refuse(self, why: str) -> bool:
        return super()._may_refuse(why) or ("folder is gone" in why and bool(self.lost))

    def _has_run(self, kind: str) -> None:
        super()._has_run(kind)
        assert not self.lost, self.story

    @precondition(lambda self: len(self.files) > 1)
    @rule(number=numbers)
    def lose_a_folder(self, number: int) -> None:
        """The metastore goes on knowing the partition."""
        name = sorted(self.files)[number % len(self.files)]
        self.did(f"lose the folder of {name}")
        shutil.rmtree(self.data / f"part={name}", ignore_errors=True)
        self.lost.add(name)

    @precondition(lambda self: self.lost)
    @rule()
    def restore_the_folders(self) -> None:
        self.did(f"restore {sorted(self.lost)}")
        for name in sorted(self.lost):
            self._put(name, self.files[name])


class TopicLives(HistoryLives):
    """A topic grows, loses its beginning or all records to retention, is compacted, and is made anew."""

    kafka: ClassVar[KafkaBroker]

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.starts = [0, 0]
        self.is_another = self.was_compacted = False
        self.since_anew = 0
        self.table = ""
        super().__init__()

    def _load(self) -> Pipeline:
        if not self.table:
            self.table = self.name
            self.kafka.create_topic(self.name, 2, {"message.timestamp.type": "LogAppendTime"})
        content = {
            "name": self.table,
            "history": {
                "kind": "kafka",
                "servers": self.kafka.servers,
                "topic": self.name,
                "accept": ["lost_start", "compacted", "holes"],
            },
            "value": {"format": "json", "schema": "k STRING, t BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "10 s"},
            "window": {"type": "tumbling", "size": "1 min"},
            "aggregates": {"n": "count(*)", "total": f"sum(v) + {self.version}"},
            "output": {"namespace": "history_lives"},
        }
        return Pipeline.model_validate(content)

    def _records(self) -> list[Record]:
        return self.log

    def _may_refuse(self, why: str) -> bool:
        return (self.is_another and "created again" in why) or (not self.log and "holds no usable record" in why)

    def _send(self, seconds: list[int]) -> None:
        records = self._new(seconds)
        self.log += records
        values = [json.dumps({name: r[name] for name in "ktv"}) for r in records]
        sent = [Sent(value, r["p"], _key(r)) for value, r in zip(values, records, strict=True)]
        produce(self.spark, self.kafka.servers, self.name, sent)

    @initialize(seconds=times)
    def begin(self, seconds: list[int]) -> None:
        self._send([*seconds, 0, 61])

    @rule(seconds=times)
    def arrive(self, seconds: list[int]) -> None:
        self.did(f"arrive {seconds}")
        self._send(seconds)

    @rule(partition=st.integers(0, 1), share=st.sampled_from([0.2, 0.5, 1]))
    def lose_the_beginning(self, partition: int, share: float) -> None:
        """As retention does; with a share of 1 the partition is emptied."""
        start, end = self.starts[partition], self.ends[partition]
        before = start + round(share * (end - start))
        self.did(f"lose partition {partition} below {before} of {end}")
        self.kafka.delete_records(self.name, partition, before)
        self.starts[partition] = before
        self.log = [r for r in self.log if r["p"] != partition or r["o"] >= before]

    @precondition(lambda self: not self.was_compacted)
    @rule()
    def compact(self) -> None:
        """The broker does it to all that lies in segments before the last one."""
        self.was_compacted = True
        self.kafka.alter_topic(self.name, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", **ROLLING})
        before = len(self.log)
        self._send([0, 61])  # one for each partition: it begins another segment, and those before it are compacted
        last = {(r["p"], _key(r)): r["o"] for r in self.log[:before]}
        self.log = [r for n, r in enumerate(self.log) if n >= before or last[r["p"], _key(r)] == r["o"]]
        self.did(f"compact: {len(self.log)} of {before + 2} records stay")
        self._wait_until_compacted()
        self.kafka.alter_topic(self.name, {"cleanup.policy": "delete", "segment.ms": str(7 * 86_400_000)})

    def _wait_until_compacted(self) -> None:
        source = {"kafka.bootstrap.servers": self.kafka.servers, "subscribe": self.name}
        expected = {(r["p"], r["o"]) for r in self.log}
        found: set[Place] = set()
        for _ in range(60):
            rows = self.spark.read.format("kafka").options(**source).load().select("partition", "offset").collect()
            found = {(r[0], r[1]) for r in rows}
            if found == expected:
                return
            time.sleep(0.5)
        raise AssertionError(f"the broker has not compacted: {sorted(found - expected)} are there, {self.story}")

    def did(self, what: str) -> None:
        super().did(what)
        self.since_anew += 1

    @precondition(lambda self: self.seen and self.since_anew > 3 * CHANGES)
    @rule(seconds=times)
    def make_anew(self, seconds: list[int]) -> None:
        """The offsets belong to other records now. Runs are refused until somebody says where the windows go."""
        self.did(f"make the topic anew with {seconds}")
        self.kafka.delete_topic(self.name)
        self.kafka.create_topic(self.name, 2, {"message.timestamp.type": "LogAppendTime"})
        self.log, self.ends, self.starts, self.is_another = [], [0, 0], [0, 0], bool(self.seen)
        self.was_compacted, self.since_anew = False, 0
        self._send(seconds)

    @precondition(lambda self: self.is_another)
    @rule()
    def write_to_another_table(self) -> None:
        self.did("write to another table")
        self.table = f"{self.name}_{next(self.count)}"
        self.pipeline = self._load()
        self.seen, self.last, self.is_another = {}, {}, False

    def _took_the_place(self) -> None:
        super()._took_the_place()
        self.is_another = False


def _key(record: Record) -> str:
    """The record's key in the topic; compaction keeps the last record of each."""
    return f"{record['k']}{record['v'] % 2}"
