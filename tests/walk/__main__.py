"""Walks from the command line: random ones, or those that are known."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.walk.plan import Kind, Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    """Take walks; 1 where one of them went wrong."""
    options = _options()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="walk-") as folder, _started(Path(folder), options.kind) as spark:
        faults = _known(spark, Path(folder), options) if options.known else _random(spark, Path(folder), options)
    print(f"{faults} walks went wrong ({time.monotonic() - began:.0f} s)")
    return bool(faults)


@contextlib.contextmanager
def _started(folder: Path, kinds: Sequence[Kind]) -> Iterator[SparkSession]:
    """A Spark with what these kinds of histories need beside it: a metastore, a broker."""
    from spark_jobs.settings import Variable
    from spark_jobs.spark.jvm import SHORT_APPLICATIONS
    from spark_jobs.spark.session import spark_session
    from tests.services.hive_metastore import HiveMetastore
    from tests.services.kafka_broker import AdministeredBroker
    from tests.walk.topic import Topic

    os.environ |= {"REWINDOW_HOME": f"{folder}/home", Variable.SPARK_IDLE_MINUTES: "0"}
    os.environ[Variable.JAVA_OPTIONS] = f"{SHORT_APPLICATIONS} -XX:+UseSerialGC -Xms1000m"
    with ExitStack() as services:
        metastore = None
        if {Kind.HIVE, Kind.VIEW} & {*kinds}:
            metastore = services.enter_context(HiveMetastore(folder / "metastore")).uri
        if {Kind.TOPIC, Kind.STITCHED} & {*kinds}:
            Topic.broker = AdministeredBroker(folder / "kafka")
            services.enter_context(Topic.broker)
        spark = spark_session("walks", home=folder / "home", metastore=metastore, master="local[2]")
        yield spark
        spark.stop()


def _known(spark: SparkSession, folder: Path, options: argparse.Namespace) -> int:
    """Take the known walks; how many of them go wrong."""
    from tests.walk.known import KNOWN
    from tests.walk.walker import Walker

    walker, faults = Walker(spark, folder), 0
    for name, walk in KNOWN.items():
        if walk.kind not in options.kind or not re.search(options.named, name):
            continue
        began = time.monotonic()
        fault = walker.first_fault(walk)
        faults += fault is not None
        print(f"{name}: {'right' if fault is None else 'wrong'} ({time.monotonic() - began:.0f} s)", flush=True)
        if fault is not None:
            print(fault.shown(), flush=True)
    return faults


def _random(spark: SparkSession, folder: Path, options: argparse.Namespace) -> int:
    from tests.walk.random_walks import take_walks

    faults = take_walks(
        spark,
        folder,
        options.steps,
        options.seed,
        kinds=options.kind,
        shapes=options.shape,
        of_one=options.of_one,
        tries=options.tries,
        say=lambda text: print(text, flush=True),
    )
    return len(faults)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="steps in all walks together (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first walk's seed; the others count up (default 0)")
    parser.add_argument("--of-one", type=int, default=16, help="steps of one walk (default 16)")
    parser.add_argument("--tries", type=int, default=40, help="walks that are tried to shrink a fault (default 40)")
    parser.add_argument("--known", action="store_true", help="take the known walks instead")
    parser.add_argument("--named", default="", help="with --known: a regular expression that is in their names")
    kinds = "kinds of histories (default: iceberg files); delta needs REWINDOW_PACKAGES with its jar"
    parser.add_argument("--kind", type=Kind, nargs="*", default=[Kind.ICEBERG, Kind.FILES], choices=[*Kind], help=kinds)
    parser.add_argument("--shape", type=Shape, nargs="*", choices=[*Shape], help="shapes of pipelines (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
