"""Measuring: contenders take turns, the median counts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.spark.gateway import JavaObject, java_context, jvm

NAMESPACE = "rewindow.bench"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: `ours` against `theirs`, median seconds; `theirs` may be missing.

    `target` says what the ratio should be, as `<= 1.6` (ours / theirs) or `>= 7` (theirs / ours: times faster).
    """

    section: str
    what: str
    ours: float
    theirs: float | None = None
    target: str = ""
    note: str = ""

    @property
    def ratio(self) -> str:
        if self.theirs is None:
            return ""
        if self.target.startswith(">="):
            return f"{self.theirs / self.ours:.1f} times faster"
        return f"{self.ours / self.theirs:.2f}x"


def to_nowhere(frame: DataFrame) -> None:
    """Compute every row and column, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def to_table(frame: DataFrame, name: str) -> None:
    """Write the frame to this table of `NAMESPACE`; the table is replaced."""
    frame.sparkSession.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    frame.writeTo(f"{NAMESPACE}.{name}").createOrReplace()


_WARM_UP = 30.0
"""Seconds. The JVM compiles what runs often, Spark's planner last: short rounds get faster for about as long."""


def alternate(
    contenders: Mapping[str, Callable[[], None]], rounds: int, log: Callable[[str], None]
) -> dict[str, float]:
    """Median seconds of each contender over `rounds` rounds, in which they take turns.

    Before them come rounds that warm up: one, or as many again as fit into half a minute.
    """

    def turns(name: str) -> dict[str, float]:
        took = {}
        for contender, run in contenders.items():
            began = time.perf_counter()
            run()
            took[contender] = time.perf_counter() - began
            log(f"{name}: {contender} {took[contender]:.2f} s")
        return took

    began = time.perf_counter()
    for number in range(rounds):
        if number and time.perf_counter() - began > _WARM_UP:
            break
        turns("warm-up")
    seconds = [turns(f"round {number}") for number in range(1, rounds + 1)]
    return {name: statistics.median(took[name] for took in seconds) for name in contenders}


def peak_memory_mib(spark: SparkSession) -> float | None:
    """The peak memory of Spark's JVM so far, in MiB, heap included; None where the system does not report it."""
    status = Path(f"/proc/{jvm(spark).java.lang.ProcessHandle.current().pid()}/status")
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


@dataclass(slots=True)
class InputRead:
    """The input that the stages of a block have read from files and tables, and the bytes that they shuffled."""

    bytes: int = 0
    records: int = 0
    shuffled: int = 0


@contextmanager
def input_read(spark: SparkSession) -> Iterator[InputRead]:
    """Count the input of the block's own stages. Totals would be wrong, because Spark forgets its oldest stages."""
    before = max((stage.stageId() for stage in _known_stages(spark)), default=-1)
    read = InputRead()
    yield read
    for stage in _known_stages(spark):
        if stage.stageId() > before:
            read.bytes += stage.inputBytes()
            read.records += stage.inputRecords()
            read.shuffled += stage.shuffleWriteBytes()


def _known_stages(spark: SparkSession) -> list[Any]:
    context: JavaObject = java_context(spark)
    context.listenerBus().waitUntilEmpty()
    python: JavaObject = spark.sparkContext
    doubles = python._gateway.new_array(jvm(spark).double, 0)
    stages = context.statusStore().stageList(None, False, False, doubles, None)
    return [stages.apply(i) for i in range(stages.length())]


def machine(spark: SparkSession) -> str:
    """The machine in one line: cores, memory, heap, Spark and Java."""
    gib = 1 << 30
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / gib
    heap = jvm(spark).java.lang.Runtime.getRuntime().maxMemory() / gib
    java = jvm(spark).java.lang.System.getProperty("java.version")
    cores = spark.sparkContext.defaultParallelism
    return f"{cores} cores, {memory:.0f} GiB memory, heap {heap:.0f} GiB, Spark {spark.version}, Java {java}"


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| measured | Rewindow | the other | ratio | target | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        theirs = "" if row.theirs is None else f"{row.theirs:.1f} s"
        cells = (f"{row.section}: {row.what}", f"{row.ours:.1f} s", theirs, row.ratio, row.target, row.note)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
