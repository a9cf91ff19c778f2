"""`python -m tests.conformance DIR`: run recorded cases of the live engines through one of the product's engines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.errors import RewindowError
from tests.conformance.formats import run_cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each failing case, then the counts; the exit code is 1 if a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder of case files, or one file")
    parser.add_argument("--engine", choices=("sequential", "spark"), default="sequential")
    parser.add_argument("--verbose", "-v", action="store_true", help="print a line for passing cases, too")
    given = parser.parse_args(arguments)
    if not given.folder.exists():
        parser.error(f"{given.folder} does not exist")
    try:
        passed, failed = run_cases(
            given.folder, given.engine, verbose=given.verbose, say=lambda line: print(line, flush=True)
        )
    except RewindowError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
