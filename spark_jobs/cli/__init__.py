"""The command line: one command a stage. `rewindow COMMAND --help` explains each."""

from __future__ import annotations

from spark_jobs.cli import act, expectations, look, report, serve  # noqa: F401 - they join the application
from spark_jobs.cli.app import main

__all__ = ["main"]
