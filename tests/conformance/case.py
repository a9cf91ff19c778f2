"""The case format `flink-oracle-case/1`: one job, its records, and what real Flink did with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, supplier_of
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import (
    AlignedWindows,
    CumulativeWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from tests.conformance.case_file import CaseFile
from tests.sequential.flink import Record

FORMAT = "flink-oracle-case/1"
_KINDS = {kind.value: kind for kind in GeneratorKind} | {"monotonous": GeneratorKind.ASCENDING}


@dataclass(frozen=True)
class Case(CaseFile):
    """One case file. `records` are in position order; `values` holds each record's value column."""

    @property
    def name(self) -> str:
        return self.document.get("name", self.path.stem)

    @property
    def rows(self) -> list[list[Any]]:
        """The case's records as written, in position order."""
        return self.document["records"]

    @property
    def drops_missing_timestamps(self) -> bool:
        """Whether records without an event time are filtered ahead of the generator."""
        return self.config.get("null_timestamp", "fail") == "drop"

    @cached_property
    def records(self) -> list[Record]:
        return [
            Record(
                partition=row[0],
                offset=row[1],
                arrival=row[2],
                key=row[3],
                timestamp=MIN_TIMESTAMP if row[4] is None else row[4],
                marker=len(row) > 6 and bool(row[6]),
                stream=row[7] if len(row) > 7 else None,
            )
            for row in self.rows
        ]

    @property
    def interval(self) -> int:
        return self.config.get("emission", {}).get("interval_ms", 0)

    @property
    def clock_end(self) -> int | None:
        return self.config.get("clock", {}).get("end_ms")

    @property
    def flush(self) -> bool:
        return self.config.get("end_of_input", "none") == "flush"

    @property
    def allowed_lateness(self) -> int:
        return self.config.get("allowed_lateness_ms", 0)

    @property
    def assigner(self) -> AlignedWindows | SessionWindows:
        window = self.config["window"]
        offset = window.get("offset_ms", 0)
        match window["kind"]:
            case "tumbling":
                return TumblingWindows(window["size_ms"], offset)
            case "sliding":
                return SlidingWindows(window["size_ms"], window["slide_ms"], offset)
            case "cumulative":
                return CumulativeWindows(window["size_ms"], window["step_ms"], offset)
            case "session":
                return SessionWindows(window["gap_ms"])
            case other:
                raise self.unknown("window kind", other, "tumbling", "sliding", "cumulative", "session")

    def strategy(self, *, all_idle_emits_maximum: bool = True) -> WatermarkStrategy:
        """The job's watermark strategy, under the rules of Flink >= 2.2 or of an older version (rule 13)."""
        config, watermark = self.config, self.config["watermark"]
        if watermark["kind"] not in _KINDS:
            raise self.unknown("watermark kind", watermark["kind"], *_KINDS)
        partitions = tuple(range(config["partitions"]))
        rows = self.rows
        return WatermarkStrategy(
            generator=supplier_of(
                _KINDS[watermark["kind"]],
                bound=watermark.get("bound_ms", 0),
                lag=watermark.get("marker_lag_ms", watermark.get("lag_ms", 0)),
                last=watermark.get("n", 1),
                wait=watermark.get("wait_ms", 0),
                streams=tuple(watermark.get("streams") or ()),
                reference=watermark.get("class", ""),
                parameters=watermark.get("parameters") or {},
            ),
            partitions=partitions,
            subtasks=tuple(tuple(s) for s in config.get("subtasks") or [partitions]),
            scope=WatermarkScope(config.get("watermark_scope", "partition")),
            per_event=config.get("emission", {}).get("mode", "per_event") == "per_event",
            interval=self.interval,
            timer_start=config.get("clock", {}).get("start_ms", rows[0][2] if rows else 0),
            idleness=watermark.get("idleness_ms"),
            all_idle_emits_maximum=all_idle_emits_maximum,
        )

    @cached_property
    def expectations(self) -> list[tuple[str, WatermarkStrategy, dict[str, Any]]]:
        """What to hold the engine to: one entry for each Flink version that the file has results of."""
        current = self.document["expected"]
        versions = [(str(current.get("flink_version", "")), self.strategy(), current["streaming"])]
        old = self.document.get("expected_flink_1_20_3")
        if old is not None:
            strategy = replace(self.strategy(), all_idle_emits_maximum=False)
            versions.append((str(old.get("flink_version", "1.20.3")), strategy, old["streaming"]))
        return versions


def load_cases(folder: Path) -> list[Path]:
    """The case files below a folder (index files left out), in the order of their names."""
    if folder.is_file():
        return [folder]
    paths = sorted(p for p in (*folder.rglob("*.json"), *folder.rglob("*.json.gz")) if p.name != "index.json")
    if not paths:
        raise DefinitionError(
            "no case files found",
            where=str(folder),
            hint="name a folder that holds case files, *.json or *.json.gz",
        )
    return paths
