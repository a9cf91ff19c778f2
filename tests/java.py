"""Java programs of the tests, compiled against Flink's jars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java

FLINK = "2.3.0"


def compiler() -> Path:
    """The compiler of this Java, which may not be there."""
    return find_java().executable.with_name("javac")


def flink_path(*artifacts: str) -> str:
    """The class path of these artifacts of Flink. Raises EnvironmentSetupError."""
    folders = [fetch_jars(f"org.apache.flink:{name}:{FLINK}", "Flink's") for name in artifacts]
    return os.pathsep.join(f"{folder}/*" for folder in folders)


def compiled(sources: Iterable[Path], path: str, classes: Path) -> None:
    """Compile the sources into the folder `classes`."""
    command = [str(compiler()), "-proc:none", "-nowarn", "-cp", path, "-d", str(classes), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
