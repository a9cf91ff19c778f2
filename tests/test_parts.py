"""Rewindow without its extras: an environment of links to the packages that it requires itself, and to no others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spark_jobs.parts import MODULES, Part, install_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def required(names: list[str]) -> set[str]:
    """The distributions behind these requirements, and those that they require."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        if one.name.lower() not in found:
            found.add(one.name.lower())
            waiting += [Requirement(text) for text in distribution(one.name).requires or []]
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of `pip install rewindow`."""
    folder = tmp_path_factory.mktemp("packages")
    for name in required(PROJECT["dependencies"]):
        for file in distribution(name).files or []:
            link = folder / file.parts[0]
            if not file.parts[0].startswith(".") and not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))
    return folder


def python(packages: Path, folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code with these packages alone; its home and its folder are `folder`."""
    paths = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(packages)!r}]\n"
    command = [sys.executable, "-I", "-S", "-c", paths + code, *arguments]
    environ = {"REWINDOW_HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)


CLI = "from spark_jobs import cli; cli.main()"


def test_every_part_is_an_extra_and_all_holds_them() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*Part, "kafka", "openlineage", "build", "all", "dev"} == set(extras)
    assert all(part in extras["all"][0] for part in Part)
    modules = {Requirement(text).name.replace("-", "_") for part in Part for text in extras[part]}
    assert {name for names in MODULES.values() for name in names} <= {
        name.removeprefix("apache_").removesuffix("_python") for name in modules
    }


def test_a_project_is_begun_and_a_report_is_written_without_any_part(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("shop,ordered_at\n" + "a,2024-03-01T12:00:00Z\nb,2024-03-01T12:00:01Z\n" * 3)
    begun = python(packages, tmp_path, CLI, "init", "orders.csv", "--yes")
    assert begun.returncode == 0, begun.stderr
    run = tmp_path / "home/runs/orders-1"
    run.mkdir(parents=True)
    (run / "request.json").write_text('{"pipeline": "orders", "run_id": "orders-1"}')
    written = python(packages, tmp_path, CLI, "report", "orders-1")
    assert written.returncode == 0, written.stderr
    assert "pip install &#39;rewindow[report]&#39;" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("sys.argv[1:] = ['up']; " + CLI, Part.AIRFLOW),
        ("from spark_jobs.quality import gx; gx.built([])", Part.GATE),
        ("from spark_jobs.runs.life.store import RunStore; RunStore('s3://lake/runs')", Part.S3),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    code: str, part: Part, packages: Path, tmp_path: Path
) -> None:
    refused = python(packages, tmp_path, code)
    assert refused.returncode != 0
    assert f"pip install 'rewindow[{part}]'" in refused.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'rewindow[gate]'"),
        ('{"url": "file:///w/rewindow-1.whl", "archive_info": {}}',
         "pip install 'rewindow[gate] @ file:///w/rewindow-1.whl'"),
        ('{"url": "file:///w/a%20b", "dir_info": {"editable": true}}', "pip install --editable '/w/a b[gate]'"),
    ],
)  # fmt: skip
def test_a_part_comes_from_where_the_package_came(
    origin: str | None, command: str, tmp_path: Path, monkeypatch
) -> None:
    """A wheel from a file: pip would ask the public registry for the bare name."""
    (folder := tmp_path / "rewindow-1.dist-info").mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rewindow\nVersion: 1\n")
    if origin:
        (folder / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command(Part.GATE) == command
