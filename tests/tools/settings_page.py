"""Write `docs/settings.md` from the class `Settings`: `python -m tests.tools.settings_page`, in the root."""

from __future__ import annotations

from pathlib import Path

from pydantic.fields import FieldInfo

from spark_jobs.settings import Settings

PAGE = Path("docs/settings.md")

_INTRODUCTION = """\
# Settings

Environment variables configure Rewindow. Every process reads them when it needs them: the command line, the tasks in
Airflow, Airflow's API server. A variable that is empty counts as not set. A value that cannot be used ends a command
with exit code 8 and a message that names the variable.

`python -m tests.tools.settings_page` generates this page from `spark_jobs/settings.py`; do not edit it by hand.
"""

_OTHERS = """\
## Where things lie

| | |
| --- | --- |
| input | the history that the pipeline names; its metastore: `history.metastore`, or `REWINDOW_METASTORE` |
| output | the Iceberg catalog `rewindow`: SQLite under `REWINDOW_HOME`, or yours with `REWINDOW_CATALOG_CONF` |
| tables | windows, late records and quarantine of each pipeline, the ledger `runs`: see [tables.md](tables.md) |
| runs | documents and reports of the runs: `REWINDOW_RUNS`, a folder or an object store |
| memory | `REWINDOW_DRIVER_MEMORY` |
| log | `$REWINDOW_HOME/logs/spark.log` |

## Variables of others

Rewindow also obeys these:

- `JAVA_HOME` and `PATH` decide which Java runs Spark.
- `SPARK_CONF_DIR` names the folder of your `spark-defaults.conf` (object stores, proxies, mirrors).
- A pipeline's YAML may name variables of yours as `${NAME}` or `${NAME:-default}`, in fields that say where things are;
  `REWINDOW_VARIABLES` can list which.
"""


def settings_page() -> str:
    """The page: one table with a row for each variable, in the order of the class."""
    rows = [_row(field) for field in Settings.model_fields.values()]
    header = ["| variable | value | default | meaning | example |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([_INTRODUCTION, *header, *rows, "", _OTHERS])


def _row(field: FieldInfo) -> str:
    examples = " or ".join(f"`{example}`" for example in field.examples or ())
    cells = (f"`{field.validation_alias}`", field.title, _default(field), field.description, examples)
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "`.rewindow` of the project"
    match field.default:
        case None:
            return "none"
        case bool(on):
            return "on" if on else "off"
        case value:
            return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
