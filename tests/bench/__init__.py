"""`make bench`: how fast the engine is beside plain Spark on the same records, in the same run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from spark_jobs.errors import DefinitionError

COMMAND = "python -m tests.bench"
RECORDS = 20_000_000
QUICK_RECORDS = 2_000_000


def sections() -> dict[str, Callable[..., Iterator]]:
    """The sections by name, in the order in which they run."""
    from tests.bench.account import account
    from tests.bench.compare import compare
    from tests.bench.engine import engine, sessions, sliding
    from tests.bench.functions import functions
    from tests.bench.gate import gate
    from tests.bench.growth import growth, year
    from tests.bench.inputs import inputs
    from tests.bench.kafka import kafka
    from tests.bench.ledger import ledger
    from tests.bench.reconcile import diff, reconcile, shapes
    from tests.bench.recorded import recorded
    from tests.bench.scale import cluster, scale, skew
    from tests.bench.small import small
    from tests.bench.strategies import strategies
    from tests.bench.streaming import streaming
    from tests.bench.two_phases import two_phases
    from tests.bench.what_if import what_if
    from tests.bench.write import write

    return {
        "engine": engine,
        "strategies": strategies,
        "two_phases": two_phases,
        "streaming": streaming,
        "recorded": recorded,
        "sliding": sliding,
        "sessions": sessions,
        "growth": growth,
        "year": year,
        "write": write,
        "inputs": inputs,
        "reconcile": reconcile,
        "shapes": shapes,
        "compare": compare,
        "diff": diff,
        "account": account,
        "what_if": what_if,
        "functions": functions,
        "gate": gate,
        "kafka": kafka,
        "small": small,
        "ledger": ledger,
        "skew": skew,
        "cluster": cluster,
        "scale": scale,
    }


def run_bench(
    console: Console,
    *,
    quick: bool = False,
    section: str | None = None,
    records: int | None = None,
    rounds: int | None = None,
    home: Path | None = None,
) -> list:
    """Run all sections, or one, print progress and a Markdown table, and return its rows.

    `quick` takes a tenth of the records; `records` and `rounds` say it exactly. Raises DefinitionError for a
    section that does not exist.
    """
    from spark_jobs.spark.session import rewindow_home, spark_session
    from tests.bench.measure import machine, markdown
    from tests.bench.workload import Bench

    known = sections()
    if section is not None and section not in known:
        raise DefinitionError(f"there is no section {section!r}", hint=f"Sections: {', '.join(known)}.")
    began = time.monotonic()

    def log(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:7.0f} s[/]  {line}", highlight=False, soft_wrap=True)

    spark = spark_session("rewindow bench", home=home)
    bench = Bench(
        spark, rewindow_home(home), records or (QUICK_RECORDS if quick else RECORDS), rounds or (3 if quick else 5), log
    )
    rows = []
    for name in [section] if section else known:
        log(f"section {name}")
        rows.extend(known[name](bench))
    command = COMMAND + (" --quick" if quick else "") + (f" --section {section}" if section else "")
    console.print(
        f"\n{machine(spark)}, Python {sys.version.split()[0]}; `{command}`\n", highlight=False, soft_wrap=True
    )
    console.print(markdown(rows), highlight=False, soft_wrap=True, markup=False)
    return rows
