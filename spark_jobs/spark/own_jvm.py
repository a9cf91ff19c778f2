"""A small JVM of its own, beside Spark's, for what Flink's own classes read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, get_return_value, is_error

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java

_JARS = Path(pyspark.__file__).parent / "jars"


class _Client(GatewayClient):
    """A client that raises the JVM's errors itself.

    With a Spark session in the process, py4j hands each error to PySpark, which looks the exception up in Spark's JVM.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """The JVM's answer. Raises Py4JJavaError and Py4JError."""
        answer = super().send_command(command, retry, binary)
        if not binary and is_error(answer)[0]:
            get_return_value(answer, self, "the JVM", "call")
        return answer


@contextmanager
def own_jvm(package: str, name: str, *options: str, is_silent: bool = False) -> Iterator[Any]:
    """The root of all Java packages of a JVM that lives as long as the block.

    Args:
        package: The jars of it and of what it needs are its classes, as `group:artifact:version`; fetched once.
        name: What it is, for messages, as in `Flink's SQL parser`.
        options: Java's options beside those of a small process.
        is_silent: Whether what it prints as errors goes nowhere.

    Raises:
        EnvironmentSetupError: Java or the jars are missing.
    """
    jars = fetch_jars(package, f"{name}'s")
    try:
        launched: Any = launch_gateway(
            jarpath=str(next(_JARS.glob("py4j-*.jar"))),
            classpath=f"{jars}/*",
            javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options],
            java_path=str(find_java().executable),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            redirect_stderr=subprocess.DEVNULL if is_silent else None,
        )
    except (Py4JError, OSError, ValueError) as error:
        raise EnvironmentSetupError(f"{name} did not start: {error}", str(jars), "Check Java.") from None
    port, token, process = launched
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(_Client(gateway_parameters=parameters), gateway_parameters=parameters)
    try:
        yield gateway.jvm
    finally:
        with suppress(Py4JError):
            gateway.shutdown()
        if process.stdin is not None:
            process.stdin.close()
        process.wait()
