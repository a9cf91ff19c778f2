"""A Java process that is driven over py4j: a real service (broker, metastore) runs in it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_jobs.spark.gateway import JavaObject
from spark_jobs.spark.java import find_java
from spark_jobs.spark.jvm import LOG_SETTINGS

JARS = Path(pyspark.__file__).parent / "jars"
"""Those that pyspark brings."""


def launched(
    classpath: Sequence[str], options: Sequence[str], output: IO[str]
) -> tuple[JavaObject, subprocess.Popen[bytes]]:
    """A new Java process and the gateway to it, with Spark's settings of its logs.

    It ends with this process: its JVM ends when the pipe to its standard input closes, even after a SIGKILL.

    Args:
        classpath: Jars, or folders with `/*`.
        options: Options of Java.
        output: What it prints goes there.
    """
    started: Any = launch_gateway(
        jarpath=str(next(JARS.glob("py4j-*.jar"))),
        classpath=":".join(classpath),
        javaopts=[*options, f"-Dlog4j2.configurationFile={LOG_SETTINGS}"],
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        create_new_process_group=True,  # Ctrl-C goes to the owner, who stops it in order
        redirect_stdout=output,
        redirect_stderr=output,
    )
    port, token, process = started
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), process
