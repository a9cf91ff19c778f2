"""`python -m tests.bench`: the whole benchmark, or one section of it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from tests.bench import run_bench

parser = argparse.ArgumentParser(description="Measure the engine against plain Spark, and print ratios.")
parser.add_argument("--quick", action="store_true", help="a tenth of the records, to see that it works")
parser.add_argument("--section", help="only this section")
given = parser.parse_args()
os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # Spark's Python processes find this package too
run_bench(Console(), quick=given.quick, section=given.section)
