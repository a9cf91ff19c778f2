"""The command line, one command for each verb; `rewindow COMMAND --help` explains each.

It may import everything. Begin with `app.py`.
"""

from __future__ import annotations

from spark_jobs.cli import (
    act,
    corrections,
    cutover,
    erasure,
    expectations,
    imports,
    init,
    live,
    look,
    marks,
    runs,
    serve,
    whatif,
)
from spark_jobs.cli.app import main

__all__ = ["main"]
