"""Random walks from the command line."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.walk.plan import Kind, Shape


def main() -> int:
    """Take walks until so many steps are taken; 1 where one of them went wrong."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        os.environ["REWINDOW_HOME"] = f"{folder}/home"
        os.environ["REWINDOW_SPARK_IDLE_MINUTES"] = "0"
        from spark_jobs.spark.session import spark_session
        from tests.walk.random_walks import take_walks

        spark = spark_session("walks", home=Path(folder) / "home", master="local[2]")
        began = time.monotonic()
        try:
            faults = take_walks(
                spark,
                Path(folder),
                options.steps,
                options.seed,
                kinds=options.kind,
                shapes=options.shape,
                of_one=options.of_one,
                tries=options.tries,
                say=lambda text: print(text, flush=True),
            )
        finally:
            spark.stop()
        print(f"{len(faults)} walks went wrong ({time.monotonic() - began:.0f} s)")
    return bool(faults)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="steps in all walks together (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first walk's seed; the others count up (default 0)")
    parser.add_argument("--of-one", type=int, default=16, help="steps of one walk (default 16)")
    parser.add_argument("--tries", type=int, default=40, help="walks that are tried to shrink a fault (default 40)")
    parser.add_argument(
        "--kind", type=Kind, nargs="*", choices=[*Kind], help="kinds of history (default: files, iceberg)"
    )
    parser.add_argument("--shape", type=Shape, nargs="*", choices=[*Shape], help="shapes of pipelines (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
