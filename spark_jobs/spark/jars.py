"""Packages from Maven Central, fetched by the Ivy that pyspark brings; and the jars that a local Spark starts with.

Ivy resolves `spark.jars.packages` anew at each start, and Spark then copies each jar for its executors, 120 MB in all.
A local Spark needs neither: driver and executor are one JVM. So the first start keeps the list of what Ivy has found,
and later ones take the files. Both are checked against `jars.sha256` beside this module, in the form of `sha256sum`: a
jar that is another file than the pinned one is refused. A package whose own jar is there is pinned, and so are all jars
that come with it. Packages that `REWINDOW_PACKAGES` adds are their author's, and are pinned where they are listed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path

import pyspark

from spark_jobs.atomic import replace_file
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.java import find_java
from spark_jobs.spark.jvm import ivy_folder, packages

CLASS_PATH = "spark.driver.extraClassPath"
_PACKAGES, _IVY = "spark.jars.packages", "spark.jars.ivy"
_OWN = re.compile(r"spark\.jars|spark\.driver\.extraClassPath|--(?:jars|packages|driver-class-path|repositories)\b")
_VERSION = re.compile(r"-\d[\w.\-]*\.jar$")


def with_jar_files(conf: Mapping[str, str], own: Iterable[str]) -> dict[str, str]:
    """The settings of a local Spark, with the files in the place of the packages where they are known.

    `own` names the settings that somebody has added: with their own jars, repositories or class path, Ivy resolves all
    together.

    Raises EnvironmentSetupError where a jar is not the pinned one.
    """
    files = None if _has_own_jars(own) else known_files()
    if not files:
        return dict(conf)
    check_jars(map(Path, files), packages(), _stamps_file())
    kept = {key: value for key, value in conf.items() if key not in (_PACKAGES, _IVY)}
    return {**kept, CLASS_PATH: os.pathsep.join(files)}


def known_files() -> list[str] | None:
    """The files of `packages()` as an earlier start has found them; None where there was none, or one is gone."""
    try:
        files = json.loads(_list_file().read_text())
    except (OSError, ValueError):
        return None
    return files if files and all(Path(file).is_file() for file in files) else None


def keep_files(jars: str) -> None:
    """Keep what Ivy has found: the value of `spark.jars`. Jars that pyspark brings too are left out: its own count.

    Raises EnvironmentSetupError where one of them is not the pinned one.
    """
    folder = ivy_folder() / "jars"
    found = [Path(jar.removeprefix("file:")) for jar in jars.split(",") if jar]
    check_jars((jar for jar in found if jar.parent == folder), packages(), _stamps_file())
    if len(found) < len(packages()) or any(jar.parent != folder for jar in found):
        return
    brought = {_VERSION.sub("", jar.name) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    files = [str(jar) for jar in found if _VERSION.sub("", jar.name.partition("_")[2]) not in brought]
    with suppress(OSError):  # a folder that cannot be written: Ivy resolves the next time too
        replace_file(_list_file(), json.dumps(files).encode())


def conf_folder() -> Path:
    """The folder of Spark's own configuration, such as `spark-defaults.conf`."""
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(pyspark.__file__).parent / "conf")


def _list_file() -> Path:
    key = sha256("\n".join([pyspark.__version__, *packages()]).encode()).hexdigest()[:16]
    return ivy_folder() / f"rewindow-jars-{key}.json"


def _stamps_file() -> Path:
    return _list_file().with_suffix(".checked")


def _has_own_jars(own: Iterable[str]) -> bool:
    texts = [*own, os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    with suppress(OSError):
        texts.append((conf_folder() / "spark-defaults.conf").read_text())
    return any(_OWN.search(text) for text in texts)


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
        EnvironmentSetupError: They cannot be fetched, there is no Java, or a jar is not the pinned one.
    """
    folder = package_folder(package)
    if folder.is_dir():
        _check_package(folder)
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
        _check_package(fetched)
        fetched.chmod(0o755)
        with suppress(OSError):  # another process was faster
            fetched.rename(folder)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return folder


def _check_package(folder: Path) -> None:
    """Nobody adds packages to those that Rewindow fetches itself: each of their jars is pinned."""
    check_jars(sorted(folder.glob("*.jar")), (), folder / "checked.json")


LIST = Path(__file__).parent / "jars.sha256"
_IN_IVYS_FOLDER = re.compile(r"^[A-Za-z][\w.-]*?_(?=[^_])")
"""The group before the artifact, as Ivy names the jars of `spark.jars.packages`."""

Stamps = Mapping[str, tuple[int, int]]
"""Size and time of change (ns) of files that were checked."""


@cache
def pinned() -> Mapping[str, str]:
    """SHA-256 by the name of the file, `artifact-version.jar`."""
    lines = (line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in lines}


def is_pinned(package: str) -> bool:
    """Whether the jars of a package (`group:artifact:version`) must be pinned ones."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}.jar" in pinned()


def check_jars(files: Iterable[Path], packages: Iterable[str], stamps: Path) -> None:
    """Check the jars of these packages; those that have not changed since they were checked are not read again.

    `stamps`: the file that keeps what was checked.

    Raises:
        EnvironmentSetupError: A jar is not the pinned one, or is not pinned though all of the packages are.
    """
    known, all_pinned = _read_stamps(stamps), all(map(is_pinned, packages))
    seen = {}
    for file in files:
        seen[file.name] = stamp = _stamp(file)
        if known.get(file.name) != stamp:
            _check(file, all_pinned=all_pinned)
    if seen != known:
        _keep_stamps(stamps, seen)


def _check(file: Path, *, all_pinned: bool) -> None:
    expected = pinned().get(file.name) or pinned().get(_IN_IVYS_FOLDER.sub("", file.name))
    if expected is None and not all_pinned:
        return
    with file.open("rb") as content:
        found = file_digest(content, "sha256").hexdigest()
    if found == expected:
        return
    wanted = "no SHA-256, because it is not pinned" if expected is None else f"the SHA-256 {expected}"
    raise EnvironmentSetupError(
        f"the jar {file.name} is not the pinned one: expected {wanted}, found {found}",
        str(file),
        "Remove the file and try again: it is fetched anew. If it comes back the same, the repository (Maven Central, "
        "or the mirror that spark-defaults.conf names) has another file: do not use it.",
    )


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _read_stamps(path: Path) -> Stamps:
    try:
        return {name: (size, at) for name, (size, at) in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep_stamps(path: Path, stamps: Stamps) -> None:
    with suppress(OSError):  # a folder that cannot be written: the jars are checked the next time too
        replace_file(path, json.dumps(stamps).encode())
