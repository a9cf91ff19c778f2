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

from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java

FOLDER = Path("tests/data/flink_expressions")
FLINK = "2.3.0"
ARTIFACTS = (
    "flink-clients",
    "flink-table-planner-loader",
    "flink-table-runtime",
    "flink-table-api-java-bridge",
    "flink-connector-files",
    "flink-json",
)


def flink_jars() -> str:
    """Flink's class path, for programs that run SQL on a local cluster. Raises EnvironmentSetupError."""
    folders = [fetch_jars(f"org.apache.flink:{name}:{FLINK}", "Flink's") for name in ARTIFACTS]
    return os.pathsep.join(f"{folder}/*" for folder in folders)


def run_java(source: Path, *arguments: str) -> str:
    """What a program of one class prints; it is compiled against Flink. Raises CalledProcessError."""
    java, jars = find_java().executable, flink_jars()
    with tempfile.TemporaryDirectory() as classes:
        compiled = [str(java.with_name("javac")), "-proc:none", "-nowarn", "-cp", jars, "-d", classes, str(source)]
        subprocess.run(compiled, check=True)
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
