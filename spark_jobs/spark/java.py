"""Find the Java that Spark and the Hive metastore run on.

It needs only the standard library, because `make setup` runs it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.addresses import without_passwords
from spark_jobs.errors import EnvironmentSetupError, RewindowError

OLDEST_JAVA = 17
NEWEST_TESTED_JAVA = 21
"""Spark 4.0 is released for Java 17 and 21; from 24 on Hadoop's login fails (Subject.getSubject is gone)."""

_INSTALL = "Install a Java 17 runtime (for example the package openjdk-17-jre-headless), or set JAVA_HOME to one."


@dataclass(frozen=True, slots=True)
class Java:
    """One Java runtime: its executable and its feature version (17, 21; 8 for `1.8.0_392`)."""

    executable: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark's launcher uses: `$JAVA_HOME/bin/java`, else `java` on the PATH.

    Raises EnvironmentSetupError when there is none, when it does not run, or when it is older than 17.
    """
    java_home = environ.get("JAVA_HOME")
    if java_home:
        executable = Path(java_home) / "bin" / "java"
        where = f"JAVA_HOME={java_home}"
        if not executable.is_file():
            raise EnvironmentSetupError(
                "JAVA_HOME has no bin/java", where, "Unset JAVA_HOME or correct it. " + _INSTALL
            )
    else:
        found = shutil.which("java", path=environ.get("PATH", os.defpath))
        if found is None:
            raise EnvironmentSetupError("Java was not found", "JAVA_HOME and PATH", _INSTALL)
        executable, where = Path(found), found

    version = _version(executable)
    if version is None:
        raise EnvironmentSetupError("`java -version` does not work", where, _INSTALL)
    if version < OLDEST_JAVA:
        raise EnvironmentSetupError(f"Java {version} is too old for Spark 4, which needs Java 17", where, _INSTALL)
    return Java(executable, version)


def _version(executable: Path) -> int | None:
    try:
        shown = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match.group(1)) if match else None


def java_reason(error: BaseException) -> str:
    """The first line of the innermost cause of an error that came out of Java (py4j or PySpark), else of its text.

    Drivers quote the address that they were given: it is shown without user and password.
    """
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = str(error) if cause is None else cause.toString()
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return without_passwords(line)


if __name__ == "__main__":
    try:
        find_java()
    except RewindowError as problem:
        sys.exit(str(problem))
