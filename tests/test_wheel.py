"""The wheel holds everything that the installed package needs beside its modules, and an image copies enough for it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_jobs import __version__

ROOT = Path(__file__).parents[1]
NO_MODULES = sorted(
    file.relative_to(ROOT).as_posix()
    for file in (ROOT / "spark_jobs").rglob("*")
    if file.is_file() and file.suffix not in (".py", ".pyc")
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the tracked files that `deploy/Dockerfile` copies, built as `pip wheel` does, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    copies = re.findall(r"^COPY (.*)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    copied = [name for line in copies for name in line.split() if (ROOT / name).exists()]
    listed = subprocess.check_output(["git", "ls-files", "-z", *copied], cwd=ROOT, text=True)
    for name in (name for name in listed.split("\0")[:-1] if (ROOT / name).exists()):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        else:
            target.write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True, cwd=folder)
    (built,) = folder.glob("rewindow-*.whl")
    return built


def test_templates_schema_suites_and_dag_files_are_in_the_wheel(wheel: Path) -> None:
    assert wheel.name.startswith(f"rewindow-{__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert sorted(set(NO_MODULES) - names) == []
        packaged = archive.read("spark_jobs/project/files/rewindow_pipelines.py")
        assert packaged == (ROOT / "dags/rewindow_pipelines.py").read_bytes()
        assert (
            archive.read("spark_jobs/project/files/windows.json") == (ROOT / "expectations/windows.json").read_bytes()
        )
    assert not any(name.startswith(("tests", "dags")) for name in names)


def test_a_project_is_begun_with_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (tmp_path / "orders.csv").write_text("shop,ordered_at\n" + "a,2024-03-01T12:00:00Z\nb,2024-03-01T12:00:01Z\n" * 3)
    program = "import sys; sys.path.insert(0, 'installed'); from spark_jobs import cli; print(cli.__file__); cli.main()"
    command = [sys.executable, "-c", program, "init", "orders.csv", "--yes"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "installed/spark_jobs/cli" in done.stdout
    assert (tmp_path / "expectations/windows.json").is_file()
    assert (tmp_path / "dags/rewindow_pipelines.py").is_file()
