"""The JVM that waits for the next command: who may join it, what a command leaves behind, and when it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.settings import Variable
from spark_jobs.spark.warm import Answer, lock_path, runtime_folder, stop_warm_spark
from tests.processes import run_python, start_python

COMMAND = """
    import os, sys, time
    from spark_jobs.spark.gateway import jvm
    from spark_jobs.spark.session import spark_session
    spark = spark_session("command", master="local[1]", warm=True)
    frame = spark.range(3).cache()
    left = [view.name for view in spark.catalog.listTables()]
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()
    frame.createOrReplaceTempView("of_this_command")
    spark.conf.set("spark.sql.shuffle.partitions", "77")
    print(jvm(spark).java.lang.ProcessHandle.current().pid(), frame.count(), left, shuffles, kept, flush=True)
    if sys.argv[1:] == ["wait"]:
        time.sleep(600)
    if sys.argv[1:] == ["die"]:
        os._exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder of a user whose JVM may wait for a minute."""
    runtime = Path(os.environ["REWINDOW_HOME"]).parent / f"run{os.getpid()}"
    runtime.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv(Variable.SPARK_IDLE_MINUTES, "1")
    found = runtime_folder()
    assert found is not None
    yield found
    stop_warm_spark()


def command(*arguments: str) -> list[str]:
    """Run a command; the process of its JVM, and what it saw of earlier ones."""
    done = run_python(COMMAND, *arguments)
    return done.stdout.split(maxsplit=1)


def has_ended(pid: str, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while Path("/proc", pid).exists() and time.monotonic() < until:
        time.sleep(0.1)
    return not Path("/proc", pid).exists()


PLANTED = "open({ran!r}, 'a').write(__name__ + ' in ' + __file__); raise ImportError('planted')"
WORK = """
    import sys
    sys.path[:] = [place for place in sys.path if place]
    from spark_jobs.spark.session import spark_session
    spark = spark_session("command", master="local[1]", warm=True)
    from pyspark.sql.functions import udf
    print(spark.range(3).select(udf(lambda n: n + 1, "long")("id").alias("n")).agg({"n": "sum"}).collect()[0][0])
"""


def test_nothing_of_the_current_folder_runs_in_the_jvm_and_its_workers(folder: Path, tmp_path: Path) -> None:
    """It may be a folder of somebody else's, such as /tmp."""
    ran = tmp_path / "ran"
    place = tmp_path / "current"
    for module in ("socket", "struct", "pickle", "shutil", "pandas", "spark_jobs/__init__", "pyspark/__init__"):
        file = place / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PLANTED.format(ran=str(ran)))
    done = run_python(WORK, cwd=place)
    assert not ran.exists(), ran.read_text()
    assert done.stdout.strip() == "6", done.stderr


@pytest.mark.long
def test_commands_share_a_jvm_one_after_another_and_nothing_else(folder: Path, monkeypatch) -> None:
    first, saw = command()
    assert saw.strip() == "3 [] 2 0"
    assert command() == [first, saw]

    waiting = start_python(COMMAND, "wait")
    assert waiting.stdout.readline().split()[0] == first
    assert stop_warm_spark() is Answer.BUSY
    own, seen = command()  # the warm one is in use
    assert own != first
    assert seen == saw
    assert has_ended(own)
    waiting.kill()
    waiting.wait()
    assert has_ended(first)  # nobody knows what it was working on

    second, _ = command("die")
    assert has_ended(second)

    third, _ = command()
    monkeypatch.setenv("SOME_CREDENTIAL", "of another project")
    fourth, _ = command()
    assert fourth != third
    assert has_ended(third)
    assert stop_warm_spark() is Answer.STOPPED
    assert has_ended(fourth)
    assert stop_warm_spark() is Answer.NONE


def test_a_folder_that_others_can_enter_is_not_used(folder: Path) -> None:
    folder.chmod(0o750)
    assert runtime_folder() is None
    folder.chmod(0o700)
    assert lock_path(folder).parent == runtime_folder()
