"""A local Spark takes its jars as files once Ivy has resolved them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_jobs.demo.kafka_broker import KAFKA_PACKAGE
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.marks.flink import RUNTIME_PACKAGE
from spark_jobs.project.flink_parser import PARSER_PACKAGE
from spark_jobs.settings import Variable
from spark_jobs.spark import jars as jars_module
from spark_jobs.spark.jars import (
    CLASS_PATH,
    check_jars,
    fetch_jars,
    is_pinned,
    keep_files,
    known_files,
    package_folder,
    pinned,
    with_jar_files,
)
from spark_jobs.spark.jvm import DELTA, PACKAGES, ivy_folder, jar_file, jvm_settings, packages


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Ivy has found under a new home: `spark.jars`. It also finds a jar that pyspark brings itself."""
    real = ivy_folder()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv(Variable.PACKAGES, raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    found = [*map(jar_file, PACKAGES), jar_file("org.slf4j:slf4j-api:2.0.16")]
    for file in found:
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(real / "jars" / file.name, file)
    return ",".join(f"file:{file}" for file in found)


@pytest.mark.long
def test_the_files_stand_for_the_packages_from_the_second_start_on(jars: str, monkeypatch) -> None:
    conf = jvm_settings()
    assert with_jar_files(conf, []) == conf
    keep_files(jars)
    files = [str(jar_file(package)) for package in PACKAGES]
    found = with_jar_files(conf, [])
    assert found[CLASS_PATH].split(":") == files and "spark.jars.packages" not in found
    # Other packages, or a file that is gone: Ivy resolves all of them again.
    monkeypatch.setenv(Variable.PACKAGES, "org.postgresql:postgresql:42.7.7")
    assert "org.postgresql:postgresql:42.7.7" in packages() and known_files() is None
    monkeypatch.delenv(Variable.PACKAGES)
    jar_file(PACKAGES[0]).unlink()
    assert with_jar_files(conf, []) == conf


@pytest.mark.long
def test_with_own_jars_ivy_resolves_all_together(jars: str, tmp_path: Path, monkeypatch) -> None:
    keep_files(jars)
    conf = jvm_settings()
    assert with_jar_files(conf, ["spark.jars.ivySettings"]) == conf
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("spark.eventLog.enabled false\n")
    assert with_jar_files(conf, []) != conf
    defaults.write_text("spark.jars.repositories https://mirror.example\n")
    assert with_jar_files(conf, []) == conf
    defaults.unlink()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    assert with_jar_files(conf, []) == conf


def test_what_does_not_lie_in_ivys_folder_is_not_kept(jars: str) -> None:
    keep_files(f"{jars},file:/elsewhere/own.jar")
    assert known_files() is None
    keep_files("")
    assert known_files() is None


# Pinned jars.


def _change(file: Path) -> None:
    """Another file of the same size: only its content tells."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file)


def test_a_changed_jar_is_refused_at_the_first_start_and_at_later_ones(jars: str) -> None:
    changed = jar_file(PACKAGES[1])
    good = changed.read_bytes()
    _change(changed)
    name = changed.name.partition("_")[2]
    refusal = (
        rf"{re.escape(changed.name)} is not the pinned one: expected the SHA-256 {pinned()[name]}, found [0-9a-f]{{64}}"
    )
    with pytest.raises(EnvironmentSetupError, match=refusal) as refused:
        keep_files(jars)
    assert refused.value.where == str(changed) and "Remove the file" in refused.value.hint
    assert known_files() is None
    changed.write_bytes(good)
    keep_files(jars)
    conf = jvm_settings()
    assert CLASS_PATH in with_jar_files(conf, [])
    _change(changed)
    with pytest.raises(EnvironmentSetupError, match=refusal):
        with_jar_files(conf, [])


def test_a_jar_that_was_checked_is_read_again_only_where_it_has_changed(tmp_path: Path, monkeypatch) -> None:
    jar = shutil.copyfile(jar_file(PACKAGES[1]), tmp_path / jar_file(PACKAGES[1]).name)
    check_jars([jar], PACKAGES, tmp_path / "checked")
    with monkeypatch.context() as patch:
        patch.setattr(jars_module, "file_digest", None)  # it would be called
        check_jars([jar], PACKAGES, tmp_path / "checked")
    (tmp_path / "checked").write_text("{}[")
    check_jars([jar], PACKAGES, tmp_path / "checked")


def test_a_jar_beside_pinned_packages_must_be_pinned_and_one_beside_own_packages_need_not(tmp_path: Path) -> None:
    jar = tmp_path / "org.example_more-1.0.jar"
    jar.write_bytes(b"other")
    with pytest.raises(EnvironmentSetupError, match="expected no SHA-256, because it is not pinned"):
        check_jars([jar], PACKAGES, tmp_path / "checked")
    check_jars([jar], [*PACKAGES, "org.example:more:1.0"], tmp_path / "checked")


def test_a_changed_jar_of_a_broker_is_refused(tmp_path: Path, monkeypatch) -> None:
    package = "org.apache.kafka:kafka_2.13:4.1.1"
    real = package_folder(package)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = package_folder(package)
    folder.mkdir(parents=True)
    for name in ("kafka_2.13-4.1.1.jar", "argparse4j-0.7.0.jar"):
        shutil.copyfile(real / name, folder / name)
    assert fetch_jars(package, "the broker's") == folder
    _change(folder / "argparse4j-0.7.0.jar")
    with pytest.raises(EnvironmentSetupError, match=r"argparse4j-0.7.0.jar is not the pinned one"):
        fetch_jars(package, "the broker's")


COORDINATE = re.compile(r"\b(?!org\.example)[a-z]\w*(?:\.\w+)+:[A-Za-z][\w.-]+:\d[\w.-]*\w")
ROOT = Path(__file__).parents[2]


def named_packages() -> set[str]:
    """The Maven coordinates that code, documents and the image name."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = (ROOT / name for name in listed if name.endswith((".py", ".md", ".yaml", "Dockerfile")))
    return {package for file in files for package in COORDINATE.findall(file.read_text())}


def test_each_package_that_is_named_somewhere_is_pinned() -> None:
    named = named_packages()
    assert {*PACKAGES, DELTA, KAFKA_PACKAGE, PARSER_PACKAGE, RUNTIME_PACKAGE} <= named
    assert sorted(package for package in named if not is_pinned(package)) == []


def test_a_package_that_rewindow_fetches_itself_must_be_pinned(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = package_folder("org.example:more:1.0")
    folder.mkdir(parents=True)
    (folder / "more-1.0.jar").write_bytes(b"other")
    with pytest.raises(EnvironmentSetupError, match="expected no SHA-256, because it is not pinned"):
        fetch_jars("org.example:more:1.0", "the example's")
