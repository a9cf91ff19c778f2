"""Write `docs/report-fields.md`, the reference of `report.json`: `python -m spark_jobs.devtools.report_fields_page`."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.report.reference import PARTS

PAGE = Path("docs/report-fields.md")

_INTRODUCTION = """\
# Fields of report.json

`rewindow report RUN --json` prints it; it lies beside the page of each run. Fields are added within a version of the
format, never renamed or removed. Instants are epoch milliseconds and durations milliseconds, unless they are texts
(ISO-8601). A part is null where the run did not get that far.

`[]` is each entry of a list. A name in braces stands for names that the pipeline or the run gives. `...` is whatever
lies below. `spark_jobs/runs/figures.py` defines each figure; page, list, command line and approval use the same.

`python -m spark_jobs.devtools.report_fields_page` generates this page from `spark_jobs/report/reference.py`; do not
edit it by hand.
"""


def report_fields_page() -> str:
    """The page: a table for each part of a report."""
    parts = [_INTRODUCTION]
    for title, fields in PARTS.items():
        rows = [f"| `{field}` | {meaning} |" for field, meaning in fields.items()]
        parts.append("\n".join([f"## {title}\n", "| field | meaning |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(report_fields_page(), encoding="utf-8")
