"""How a Spark task starts its application: the connection says where it runs, the settings say with what.

Also what it says of its end, and its log without Ivy's lines.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from spark_jobs.errors import first_line
from spark_jobs.settings import more_conf, settings
from spark_jobs.spark.jvm import jvm_settings
from spark_jobs.submit.package import ERROR, packaged


@cache
def _archive() -> str:
    return str(packaged())


def spark_submit_settings() -> dict[str, Any]:
    """The arguments of SparkSubmitOperator that all stages share. Raises EnvironmentSetupError."""
    configured = settings()
    conf = jvm_settings()
    memory, packages = conf.pop("spark.driver.memory"), conf.pop("spark.jars.packages")
    return {
        "conn_id": configured.spark_connection,
        "driver_memory": memory,
        "packages": packages,
        "py_files": _archive(),
        "conf": {**conf, **more_conf()},
        "verbose": False,
    }


_LONGEST = 1000
_IVY = re.compile(
    r"^(:: (?:loading settings|resolving dependencies|resolution report|retrieving|problems summary)\b"
    r"|:: USE VERBOSE|Ivy Default Cache set to|The jars for the packages stored in"
    r"|\S+#\S+ added as a dependency$|\s*confs: \["
    r"|\s*found \S+#\S+;\S+ in |\s*\[(?:SUCCESSFUL|NOT REQUIRED)\b|downloading https?://\S+"
    r"|\s*:: (?:modules in use|evicted modules)|\s*\S+#\S+;\S+ (?:from|by) \S+ in \["
    r"|\s*-{20,}$|\s*\|\s+(?:\|\s+modules|conf\s|default\s)|\s*\d+ artifacts copied, )"
)
"""Lines that Ivy prints while it looks up jars that are there already."""


def without_ivy(lines: Iterator[Any]) -> Iterator[Any]:
    """The lines but those that Ivy prints of its everyday work; its problems stay."""
    return (line for line in lines if line.strip() and not _IVY.match(str(line).rstrip()))


def readable(lines: Iterator[Any]) -> Iterator[str]:
    """The lines, with our own about stages, which are JSON for machines, as people read them."""
    for line in lines:
        yield _of_stage(str(line)) or line


def _of_stage(line: str) -> str:
    """A line about a stage in words; empty for any other line."""
    if not line.startswith('{"stage": '):
        return ""
    try:
        said = json.loads(line)
        event, stage, detail, seconds = (said.get(name) for name in ("event", "stage", "detail", "seconds"))
    except ValueError:
        return ""
    if event == "stage started":
        return f"{stage}: {detail}" if detail else f"{stage} begins"
    return f"{stage} has taken {seconds} s" if event == "stage ended" else ""


_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")


_KILLED = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})
"""How a shell, such as that of `spark-submit`, passes on that a signal has ended its program."""
_CODE = re.compile(r"Error code is: (-?\d+)")


@dataclass(frozen=True, slots=True)
class End:
    """How an application ended that failed: its exit code, where it is known, and why, in a sentence."""

    code: int | None
    sentence: str
    is_killed: bool = False
    """A signal ended it, and it had said nothing before: somebody has marked its task, or there was no memory."""


class QuietSparkSubmitHook(SparkSubmitHook):
    """Airflow's hook, with a log without Ivy's lines. It keeps the line in which the application says why it ends.

    On a local master, the application starts without `spark-submit`: it finds its jars as files, and it can join the
    JVM that an earlier task has left warm.
    """

    said = ""

    def end_of(self, problem: Exception) -> End:
        """What is to be said of an application that this hook has seen fail: not its whole command line."""
        first = first_line(problem)
        found = _CODE.search(first)
        if first.startswith("Cannot execute"):
            first = f"the Spark application ended with code {found[1] if found else 'unknown'} and left no message"
        code = int(found[1]) if found else None
        is_killed = code is not None and (code < 0 or code in _KILLED) and not self.said
        return End(code, (self.said or first)[:_LONGEST], is_killed)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        connection = self._connection
        is_plain = not (connection["deploy_mode"] == "cluster" or connection["principal"] or connection["keytab"])
        if not is_plain or not _LOCAL.fullmatch(connection["master"]):
            return super()._build_spark_submit_command(application)
        arguments = [str(argument) for argument in self._application_args or ()]
        self.log.info("Spark runs on this machine: %s", connection["master"])
        return [sys.executable, application, *arguments, "--master", connection["master"]]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(readable(without_ivy(self.listening(itr))))

    def listening(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Passes the lines on, and keeps the last one in which the application says why it ends."""
        for line in lines:
            if str(line).startswith(ERROR):
                self.said = str(line).removeprefix(ERROR).strip()
            yield line


def quiet(hook: SparkSubmitHook) -> QuietSparkSubmitHook:
    """The hook that Airflow has made, as `QuietSparkSubmitHook`."""
    hook.__class__ = QuietSparkSubmitHook
    return cast(QuietSparkSubmitHook, hook)


def end_of(hook: object, problem: Exception) -> End:
    """`QuietSparkSubmitHook.end_of`, where the task got as far as to have a hook."""
    return hook.end_of(problem) if isinstance(hook, QuietSparkSubmitHook) else End(None, str(problem)[:_LONGEST])
