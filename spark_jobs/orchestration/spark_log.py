"""How a Spark task starts its application, and its log as people read it: without what Ivy says about its jars."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

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


_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")


class QuietSparkSubmitHook(SparkSubmitHook):
    """Airflow's hook, with a log without Ivy's lines.

    On a local master, the application starts without `spark-submit`: it finds its jars as files, and it can join the
    JVM that an earlier task has left warm.
    """

    def _build_spark_submit_command(self, application: str) -> list[str]:
        connection = self._connection
        is_plain = not (connection["deploy_mode"] == "cluster" or connection["principal"] or connection["keytab"])
        if not is_plain or not _LOCAL.fullmatch(connection["master"]):
            return super()._build_spark_submit_command(application)
        arguments = [str(argument) for argument in self._application_args or ()]
        self.log.info("Spark runs on this machine: %s", connection["master"])
        return [sys.executable, application, *arguments, "--master", connection["master"]]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(without_ivy(itr))


def quiet(hook: SparkSubmitHook) -> SparkSubmitHook:
    """The hook that Airflow has made, as `QuietSparkSubmitHook`."""
    hook.__class__ = QuietSparkSubmitHook
    return hook
