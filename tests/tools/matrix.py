"""Try the built wheel with several versions of Python, Airflow and Spark: `make matrix`.

Each combination gets an environment of its own with the wheel and its extras. There a new user's steps are taken
(`init`, `check`, a real `run` with its gate and report), Airflow imports DAG files and plugin, and its scheduler
carries out a backfill. The same is done with the image of `deploy/Dockerfile`, built without containers: what it
copies, and the steps that need no root, in an environment. Needs uv and the network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from spark_jobs.settings import Variable

FOLDER = Path("build/matrix")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Combination:
    """Versions that are tried together; `others`: what they need beside them, as constraints."""

    python: str
    airflow: str
    spark: str
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"python-{self.python}-airflow-{self.airflow}-spark-{self.spark}"

    def constraints(self) -> str:
        """As pip's and uv's constraints have it."""
        named = {"apache-airflow": self.airflow, "pyspark": self.spark}
        versions = [f"{package}=={version}" for package, version in named.items()]
        return "".join(f"{line}\n" for line in (*versions, *self.others))


COMBINATIONS = (
    Combination("3.11", "3.1.8", "4.0.0"),
    Combination("3.12", "3.2.2", "4.0.3", ("fastapi<0.137",)),
    Combination("3.13", "3.3.2", "4.0.5"),
    Combination("3.11", "3.3.2", "4.1.1"),
)
"""The oldest supported versions, some between, those of `requirements.txt`, a newer Spark: as in docs/airflow.md."""

_IMPORTED = """
import json, runpy, sys
from importlib.metadata import entry_points
from airflow.sdk import DAG
named = runpy.run_path("dags/rewindow_pipelines.py")
(plugin,) = (entry.load() for entry in entry_points(group="airflow.plugins") if entry.name == "rewindow_reports")
print(json.dumps(sorted({dag.dag_id for dag in named.values() if isinstance(dag, DAG)})))
"""
_BACKFILL = """
from pathlib import Path
from spark_jobs.demo.airflow import Airflow
with Airflow(Path("airflow"), project=Path(".")) as airflow:
    airflow.unpause("backfill__orders")
    run = airflow.trigger("backfill__orders", {"reason": "a try of these versions"})
    state = airflow.wait(run)
    print(state if state == "success" else airflow.failures(run))
"""
_DAGS = [f"{kind}__orders" for kind in ("backfill", "decide", "look", "maintain", "reconcile")]


def orders(file: Path) -> None:
    """Some hours of orders, as in docs/tutorial.md."""
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    with file.open("w") as lines:
        for number in range(400):
            arrived = noon + timedelta(seconds=20 * number)
            delay = timedelta(minutes=25 if number % 50 == 49 else 0, seconds=number % 7)
            order = {
                "partition": number % 2,
                "offset": number // 2,
                "append_time": arrived.isoformat(),
                "shop": "north" if number % 3 else "south",
                "ordered_at": (arrived - delay).isoformat(),
            }
            lines.write(json.dumps(order) + "\n")


def build_wheel(folder: Path) -> Path:
    """The wheel of the checkout's files, as `pip wheel` builds it from a copy of them."""
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "spark_jobs", source / "spark_jobs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dags", "expectations"):  # files of the package are links to these
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    called(["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(source)])
    (wheel,) = folder.glob("rewindow-*.whl")
    return wheel


def try_combination(one: Combination, wheel: Path, folder: Path) -> None:
    """Install and use the wheel with these versions. Raises CalledProcessError or ValueError where a step fails."""
    home = folder / one.name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    environment, constraints, overrides = home / "env", home / "constraints.txt", home / "overrides.txt"
    constraints.write_text(one.constraints())
    overrides.write_text("pyspark-client ; sys_platform == 'never'\n")  # it owns the same files as pyspark
    called(["uv", "venv", "--quiet", "--python", one.python, str(environment)])
    chosen = ["--constraint", str(constraints), "--override", str(overrides)]
    extras = f"rewindow[airflow,gate,report,s3] @ {wheel.as_uri()}"
    called(["uv", "pip", "install", "--quiet", "--python", str(environment / "bin/python"), *chosen, extras])
    use(environment, home / "work")


def try_image(folder: Path) -> None:
    """Do what `deploy/Dockerfile` does after its packages of Debian, and use what came of it; raises as above."""
    home = folder / "image"
    shutil.rmtree(home, ignore_errors=True)
    source, environment = home / "rewindow", home / "env"
    source.mkdir(parents=True)
    text = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    (python,) = re.findall(r"^FROM apache/airflow:\S+-python(\S+)$", text, re.MULTILINE)
    for line in re.findall(r"^COPY --chown=\S+ (.*) /opt/rewindow\S*$", text, re.MULTILINE):
        for name in line.split():
            called(["cp", "--recursive", "--no-dereference", str(ROOT / name), str(source)])
    called(["uv", "venv", "--quiet", "--seed", "--python", python, str(environment)])
    (variables,) = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    environ = os.environ | dict(re.findall(r"(\w+)=(\S+)", variables))
    environ["PATH"] = f"{environment / 'bin'}:{os.environ['PATH']}"
    for step in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        if "apt-get" not in step:
            called(["bash", "-o", "pipefail", "-c", step], source, environ)
    use(environment, home / "work")


def use(environment: Path, work: Path) -> None:
    """A new user's steps with what is installed in an environment, in an empty folder; then a backfill in Airflow."""
    work.mkdir()
    orders(work / "orders.jsonl")
    environ = {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        Variable.HOME: str(work / "home"),
        Variable.SPARK_IDLE_MINUTES: "0",  # nothing stays behind in an environment that may be removed
        "AIRFLOW_HOME": str(work / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    proposed = ["--name", "orders", "--key", "shop", "--bound", "2 min", "--size", "1 h", "--namespace", "matrix"]
    for command in (
        ["init", "orders.jsonl", *proposed, "--yes"],
        ["check", "orders"],
        ["expectations", "check", "orders"],
        ["run", "orders"],
        ["report", "--last"],
    ):
        called(["rewindow", *command], work, environ)
    found = called(["python", "-c", _IMPORTED], work, environ).splitlines()[-1]
    if json.loads(found) != _DAGS:
        raise ValueError(f"Airflow found the DAGs {found}")
    ended = called(["python", "-c", _BACKFILL], work, environ).strip()
    if ended != "success":
        raise ValueError(f"the backfill in Airflow failed: {ended}")


def called(command: list[str], folder: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
    """What a command prints. Where it fails, all that it says is shown."""
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        done.check_returncode()
    return done.stdout


def main() -> None:
    """Try all combinations and the image, or those that are given (1, 2, ..., image); exit code 1 where one fails."""
    if shutil.which("uv") is None:
        raise SystemExit("make matrix needs uv: pip install uv")
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wheel, failed = build_wheel(folder), []
    ways: dict[str, Callable[[], None]] = {
        str(number): partial(try_combination, one, wheel, folder) for number, one in enumerate(COMBINATIONS, 1)
    }
    ways["image"] = partial(try_image, folder)
    for way in sys.argv[1:] or ways:
        name = COMBINATIONS[int(way) - 1].name if way.isdecimal() else way
        try:
            ways[way]()
        except (subprocess.CalledProcessError, ValueError) as problem:
            print(problem, file=sys.stderr)
            failed.append(name)
        print("failed" if name in failed else "passed", name, flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
