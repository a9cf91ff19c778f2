"""A project with a live job's own functions: a jar that the tests compile, and Python modules."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pyspark
import pytest

from spark_jobs.functions.java import FLINK_PACKAGES
from spark_jobs.spark.jars import fetch_jars
from tests.java import compiled, compiler

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def jobs_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of the job in `job/`."""
    if not compiler().exists():
        pytest.skip(f"there is no {compiler()}: this Java cannot compile")
    folders = [fetch_jars(package, "Flink's interfaces'") for package in FLINK_PACKAGES]
    path = os.pathsep.join(f"{folder}/*" for folder in [*folders, Path(pyspark.__file__).parent / "jars"])
    classes = tmp_path_factory.mktemp("classes")
    compiled(sorted((HERE / "job").glob("*.java")), path, classes)
    jar = classes / "job.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(classes.rglob("*.class")):
            archive.write(file, file.relative_to(classes))
    return jar


@pytest.fixture
def project(jobs_jar: Path, tmp_path: Path) -> Path:
    """A project's folder with the jar and the Python modules in `jobs/`."""
    shutil.copytree(HERE / "project", tmp_path, dirs_exist_ok=True)
    shutil.copyfile(jobs_jar, tmp_path / "jobs" / "job.jar")
    (tmp_path / "dags" / "pipelines").mkdir(parents=True)
    return tmp_path
