"""`python -m spark_jobs.cli`."""

from __future__ import annotations

import os

from spark_jobs.cli import main

os.environ.setdefault("PYTHONUNBUFFERED", "1")
main()
