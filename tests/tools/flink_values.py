"""Record what expressions give in real Flink: `python -m tests.tools.flink_values`, in the root.

The expressions and the table of values that they are evaluated over lie in `tests/data/flink_expressions/given.json`.
Flink's types and values go to `record.json` beside it, with which `tests/project/test_flink_expressions.py` compares
what `import flink-sql` writes for Spark. It needs Maven Central, once, and a Java that compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from spark_jobs.spark.java import find_java
from tests.java import FLINK, compiled, flink_path

FOLDER = Path("tests/data/flink_expressions")
ARTIFACTS = (
    "flink-clients",
    "flink-table-planner-loader",
    "flink-table-runtime",
    "flink-table-api-java-bridge",
    "flink-connector-files",
    "flink-json",
)


def run_java(source: Path, *arguments: str) -> str:
    """What a program of one class prints; it is compiled against Flink. Raises CalledProcessError."""
    java, jars = find_java().executable, flink_path(*ARTIFACTS)
    with tempfile.TemporaryDirectory() as classes:
        compiled([source], jars, Path(classes))
        run = [str(java), "-Xmx700m", "-Duser.timezone=UTC", "-cp", f"{classes}{os.pathsep}{jars}", source.stem]
        return subprocess.run([*run, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def record() -> None:
    """Write the record anew, one line for each expression and time zone."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        run_java(FOLDER / "Values.java", str(FOLDER / "given.json"), str(out))
        found = json.loads(out.read_text())
    lines = ",\n".join(json.dumps(one) for one in found)
    (FOLDER / "record.json").write_text(f'{{"flink": "{FLINK}", "results": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    record()
