"""Fetch a package with all its dependencies from Maven Central, with the Ivy that pyspark brings."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.java import find_java
from spark_jobs.spark.jvm import ivy_folder

_SECONDS = 900


def package_folder(package: str) -> Path:
    """Where the jars of a package (`group:artifact:version`) and of its dependencies lie once they are fetched."""
    return ivy_folder() / package.replace(":", "_")


def fetch_jars(package: str, what: str) -> Path:
    """The folder with the jars of a package and its dependencies, fetched if missing.

    Args:
        package: The Maven coordinate, `group:artifact:version`.
        what: Whose jars they are, for the message.

    Raises:
        EnvironmentSetupError: They cannot be fetched, or there is no Java.
    """
    folder = package_folder(package)
    if folder.is_dir():
        return folder
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    group, artifact, version = package.split(":")
    ivy_folder().mkdir(parents=True, exist_ok=True)
    fetched = Path(tempfile.mkdtemp(dir=ivy_folder(), prefix="fetching-"))
    command = [str(find_java().executable), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-cache", str(ivy_folder() / "cache"), "-dependency", group, artifact, version, "-confs", "default"]
    command += ["-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode or not any(fetched.glob(f"{artifact}-*.jar")):
            lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "UNRESOLVED" in line.upper()]
            raise EnvironmentSetupError(
                f"{what} jars could not be fetched: {lines[0] if lines else 'no answer'}",
                package,
                "They come from Maven Central, once. Check the network and try again.",
            )
        fetched.chmod(0o755)
        with suppress(OSError):  # another process was faster
            fetched.rename(folder)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return folder
