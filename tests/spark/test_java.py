"""Which Java is used, and which is refused with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.java import find_java


def java_that_prints(folder: Path, banner: str, code: int = 0) -> Path:
    """A folder with an executable bin/java that answers `-version` as Java does, on stderr."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return folder


def test_the_java_of_this_machine_is_found() -> None:
    java = find_java()
    assert java.version >= 17
    assert java.executable.is_file()


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19', 21),
        ('openjdk version "25-ea"', 25),
    ],
)
def test_java_home_comes_before_the_path(tmp_path: Path, banner: str, version: int) -> None:
    home = java_that_prints(tmp_path / "home", banner)
    path = java_that_prints(tmp_path / "path", 'openjdk version "18"') / "bin"
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path)})
    assert (found.version, found.executable) == (version, home / "bin" / "java")


@pytest.mark.parametrize(("banner", "version"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2"', 11)])
def test_java_older_than_17_is_refused(tmp_path: Path, banner: str, version: int) -> None:
    path = java_that_prints(tmp_path, banner) / "bin"
    with pytest.raises(EnvironmentSetupError, match=f"Java {version} is too old") as refused:
        find_java({"PATH": str(path)})
    assert "JAVA_HOME" in refused.value.hint
    assert refused.value.exit_code == 8


def test_without_java_the_hint_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentSetupError, match=r"Java was not found.*Install a Java 17 runtime"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    path = java_that_prints(tmp_path, "Unable to locate a Java Runtime", 1) / "bin"
    with pytest.raises(EnvironmentSetupError, match="does not work"):
        find_java({"PATH": str(path)})
