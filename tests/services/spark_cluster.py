"""A real Spark standalone cluster on loopback, from the jars that pyspark brings: a master and its workers.

    with SparkCluster(Path("cluster"), workers=2) as cluster:
        spark = spark_session("trial", master=cluster.url)

Standalone runs Python applications in client deploy mode only: the driver stays with whoever submits.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pyspark

from spark_jobs.demo.ports import free_port
from spark_jobs.demo.supervised import Supervised, becomes_true
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.java import find_java

_START_SECONDS = 90
_CLASSES = "org.apache.spark.deploy"


class SparkCluster:
    """A master and `workers` workers of one core and `memory` each; logs and work folders lie in `directory`."""

    def __init__(self, directory: Path, *, workers: int = 2, memory: str = "1g") -> None:
        self.directory = directory.absolute()
        self._workers = workers
        self._memory = memory
        self._port, self._web_port = free_port(), free_port()
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The address of the master, for `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def web(self) -> str:
        """The master's own page."""
        return f"http://127.0.0.1:{self._web_port}"

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> SparkCluster:
        """Start, and wait until all workers have joined. Raises EnvironmentSetupError when they do not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        host = ["--host", "127.0.0.1"]
        self._launch("master", "master.Master", *host, "-p", str(self._port), "--webui-port", str(self._web_port))
        self._wait_until_joined(0)
        for number in range(1, self._workers + 1):
            work = self.directory / f"work-{number}"
            self._launch(
                f"worker-{number}",
                "worker.Worker",
                *host,
                "--webui-port",
                str(free_port()),
                "-c",
                "1",
                "-m",
                self._memory,
                "-d",
                str(work),
                self.url,
            )
        self._wait_until_joined(self._workers)
        return self

    def stop(self) -> None:
        """End all of its processes; harmless twice."""
        self._running.close()

    def applications(self) -> list[dict[str, Any]]:
        """The applications that the master has seen, running and completed."""
        state = httpx.get(f"{self.web}/json/", timeout=10).json()
        return [*state["activeapps"], *state["completedapps"]]

    def _launch(self, name: str, main: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        log = self._running.enter_context((self.directory / f"{name}.log").open("ab"))
        environ = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(find_java().executable), "-Xmx256m", "-cp", f"{home}/jars/*", f"{_CLASSES}.{main}", *arguments]
        process = Supervised(command, environ=environ, log=log, folder=self.directory)
        self._running.callback(process.stop)

    def _wait_until_joined(self, workers: int) -> None:
        def have_joined() -> bool:
            with suppress(httpx.HTTPError, ValueError):
                state = httpx.get(f"{self.web}/json/", timeout=5).json()
                return sum(worker["state"] == "ALIVE" for worker in state["workers"]) >= workers
            return False

        if not becomes_true(have_joined, within=_START_SECONDS, every=0.5):
            raise EnvironmentSetupError(
                "the Spark cluster did not start", str(self.directory), "Its logs are in that folder."
            )
