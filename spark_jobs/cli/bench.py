"""`rewindow bench`: from a clone it starts the benchmark, which is one of the developers' tools."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec

import typer

from spark_jobs.cli.app import app
from spark_jobs.errors import EnvironmentSetupError

_BENCH = "tests.bench"
_ANY = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(hidden=True, context_settings=_ANY, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Measure the engine against plain Spark (`--section NAME`, `--quick`); only in a clone of the repository."""
    if find_spec("tests") is None:
        raise EnvironmentSetupError("the package has no benchmark", _BENCH, "Clone the repository, then `make bench`.")
    sys.argv = ["rewindow bench", *context.args]
    runpy.run_module(_BENCH, run_name="__main__")
