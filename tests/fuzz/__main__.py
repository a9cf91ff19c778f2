"""`make fuzz MINUTES=30`: try inputs of all kinds; end with 1 where one of them is a fault, which is printed.

Each kind gets an equal share of the minutes, and at least `LEAST` inputs however long they take. `SEED` begins with
another seed; by default it is chosen at random and printed. A fault is found again by `KIND` and `SEED`, at once.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable

from spark_jobs.settings import Variable
from tests.fuzz.search import Tally

LEAST = 10_000
Search = Callable[[int, int, float], Tally]


def main() -> int:
    """The exit code of the command."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="rewindow-fuzz-") as home:
        os.environ[Variable.HOME] = home
        searches = _searches(asked.kind)
        print(f"{len(searches)} kinds, seed {asked.seed}", flush=True)
        tallies = [_searched(name, search, asked, len(searches)) for name, search in searches.items()]
    findings = [tally.finding for tally in tallies if tally.finding is not None]
    print(f"{sum(tally.inputs for tally in tallies):,} inputs, {len(findings)} faults, seed {asked.seed}")
    return 1 if findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try inputs that nobody would write.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--inputs", type=int, default=LEAST, help="at least so many of each kind")
    parser.add_argument("--kind", default="", help="one kind only, or several with commas")
    return parser.parse_args()


def _searches(chosen: str) -> dict[str, Search]:
    from tests.fuzz.kinds import kinds_on_spark, kinds_without_spark

    wanted = set(filter(None, chosen.split(",")))
    plain, on_spark = kinds_without_spark(), kinds_on_spark()
    if unknown := wanted - {kind.name for kind in (*plain, *on_spark)}:
        known = ", ".join(kind.name for kind in (*plain, *on_spark))
        sys.exit(f"there is no kind {', '.join(sorted(unknown))}; the kinds are {known}")
    found: dict[str, Search] = {kind.name: kind.search for kind in plain if not wanted or kind.name in wanted}
    batches = [kind for kind in on_spark if not wanted or kind.name in wanted]
    if batches:
        from spark_jobs.spark.session import spark_session

        spark = spark_session("fuzz", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
        found |= {kind.name: lambda *given, kind=kind: kind.search(spark, *given) for kind in batches}
    return found


def _searched(name: str, search: Search, asked: argparse.Namespace, kinds: int) -> Tally:
    began = time.monotonic()
    tally = search(asked.seed, asked.inputs, began + asked.minutes * 60 / kinds)
    print(f"{name}: {tally.inputs:,} inputs, {time.monotonic() - began:.0f} s", flush=True)
    if tally.finding is not None:
        print(tally.finding, flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
