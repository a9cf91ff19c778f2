"""A project with a live job's own functions: a jar that the tests compile, and Python modules."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.functions.jar import HERE, job_jar
from tests.java import compiler


@pytest.fixture(scope="session")
def jobs_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of the job in `job/`."""
    if not compiler().exists():
        pytest.skip(f"there is no {compiler()}: this Java cannot compile")
    return job_jar(tmp_path_factory.mktemp("classes"))


@pytest.fixture
def project(jobs_jar: Path, tmp_path: Path) -> Path:
    """A project's folder with the jar and the Python modules in `jobs/`."""
    shutil.copytree(HERE / "project", tmp_path, dirs_exist_ok=True)
    shutil.copyfile(jobs_jar, tmp_path / "jobs" / "job.jar")
    (tmp_path / "dags" / "pipelines").mkdir(parents=True)
    return tmp_path
