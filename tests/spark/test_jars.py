"""A local Spark takes its jars as files once Ivy has resolved them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.settings import Variable
from spark_jobs.spark.jars import CLASS_PATH, keep_files, known_files, with_jar_files
from spark_jobs.spark.jvm import PACKAGES, jar_file, jvm_settings, packages


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Ivy has found under a new home: `spark.jars`. It also finds a jar that pyspark brings itself."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv(Variable.PACKAGES, raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    found = [*map(jar_file, PACKAGES), jar_file("org.slf4j:slf4j-api:2.0.16")]
    for file in found:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
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
