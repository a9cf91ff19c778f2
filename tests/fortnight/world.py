"""What the nights need around them, and what happens to it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import psutil
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.airflow import Airflow
from spark_jobs.demo.ports import free_port
from spark_jobs.demo.supervised import becomes_true
from tests.kafka import Producer, Sent
from tests.orchestration.project import SPARK_CONF, copy_dags
from tests.services.hive_metastore import HiveMetastore
from tests.services.kafka_broker import AdministeredBroker

HISTORY, OUTPUT = "rides", "hours"
NIGHTLY, FULL = "nights", "full"
PATIENCE = 1500
"""How long a night may take, in seconds."""

_DEFINITION = """\
name: {name}
history: {{kind: kafka, servers: '{servers}', topic: rides}}
value: {{format: json, schema: "k STRING, t BIGINT, v BIGINT"}}
keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{generator: bounded_out_of_orderness, bound: 10 min, emission: per_event, partitions: [0, 1]}}
window: {{type: tumbling, size: 1 h}}
aggregates: {{n: count(*), total: sum(v)}}
end_of_input: freeze
output: {{namespace: fortnight, table: {name}}}
publish: always
schedule: "0 0 1 1 *"
"""
_LIVE = """\
live:
  source:
    kind: kafka
    servers: '{servers}'
    topic: hours
    key: {{format: json, schema: "k STRING, window_start STRING"}}
    value: {{format: json, schema: "n BIGINT, total BIGINT"}}
  mode: upsert
  window: {{start: window_start, unit: iso, time_zone: UTC}}
corrections: {{value: complete, times: iso}}
"""
_GATE = {
    "name": NIGHTLY,
    "expectations": [
        {
            "type": "expect_column_min_to_be_between", "kwargs": {"column": "n__complete", "min_value": 1},
            "severity": "critical", "meta": {"data": "windows"},
        }
    ],
}  # fmt: skip


class Struck(StrEnum):
    """What is killed while a night runs, and comes back."""

    NOTHING = "nothing"
    APPLICATION = "the application"
    BROKER = "the broker"
    METASTORE = "the metastore"
    SCHEDULER = "the scheduler"


def deck(seed: int, nights: int) -> list[Struck]:
    """What is struck in which night: nothing in the first and the last one, in the others each in turn, shuffled."""
    draw, found = random.Random(f"struck {seed}"), list[Struck]()
    while len(found) < nights:
        hand = list(Struck)
        draw.shuffle(hand)
        found += hand
    return [Struck.NOTHING, *found[: nights - 2], Struck.NOTHING][-nights:]


class World:
    """A broker with the history and the live job's output, a metastore with the tables, an Airflow with the DAGs."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self._home = folder, home
        self.broker = AdministeredBroker(folder / "kafka", port=free_port(), heap="256m")
        self.metastore = HiveMetastore(folder / "metastore", port=free_port(), heap="256m")
        self.warehouse = folder / "warehouse"
        self.catalog = {"type": "hive", "uri": self.metastore.uri, "warehouse": str(self.warehouse)}
        self._project = folder / "project"
        environ = {
            "REWINDOW_HOME": str(home), "REWINDOW_CATALOG_SECONDS": "5", "REWINDOW_KEEP_AT_LEAST": "1 min",
            "REWINDOW_CATALOG_CONF": ",".join(map("=".join, self.catalog.items())),
            "REWINDOW_DRIVER_MEMORY": "640m", "REWINDOW_SPARK_CONF": SPARK_CONF,
            "REWINDOW_EXPECTATIONS": str(self._project / "expectations"), "REWINDOW_SPARK_IDLE_MINUTES": "0",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
        }  # fmt: skip
        spark = {"conn_type": "spark", "host": "local[1]"}
        self.airflow = Airflow(folder / "airflow", project=self._project, slots=2, spark=spark, environ=environ)
        self._services = ExitStack()

    def __enter__(self) -> World:
        with ExitStack() as started:
            started.enter_context(self.broker)
            started.enter_context(self.metastore)
            self.broker.create_topic(HISTORY, 2)
            self.broker.create_topic(OUTPUT, 1)
            self._make_project()
            started.enter_context(self.airflow)
            for dag_id in (f"reconcile__{NIGHTLY}", f"maintain__{NIGHTLY}"):
                self.airflow.unpause(dag_id)
                of_the_schedule = self.airflow.scheduled(dag_id)  # the nights are triggered one by one
                self.airflow.patch(f"/dags/{dag_id}/dagRuns/{quote(of_the_schedule.run_id)}", {"state": "failed"})
            self._services = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._services.close()

    def _make_project(self) -> None:
        copy_dags(self._project)
        (self._project / "plugins").mkdir()
        (self._project / "expectations" / f"{NIGHTLY}.json").write_text(json.dumps(_GATE))
        pipelines = self._project / "dags/pipelines"
        text = (_DEFINITION + _LIVE).format(name=NIGHTLY, servers=self.broker.servers)
        (pipelines / f"{NIGHTLY}.yaml").write_text(text)
        (self._project / f"{FULL}.yaml").write_text(_DEFINITION.format(name=FULL, servers=self.broker.servers))

    @property
    def nightly(self) -> Pipeline:
        """The pipeline that is reconciled night after night."""
        return load_pipeline(self._project / "dags/pipelines" / f"{NIGHTLY}.yaml")

    @property
    def full(self) -> Pipeline:
        """The same one, for a full run."""
        return load_pipeline(self._project / f"{FULL}.yaml")

    def send(self, spark: SparkSession, topic: str, records: list[Sent]) -> None:
        producer = Producer(spark, self.broker.servers)
        try:
            producer.send(topic, records)
        finally:
            producer.close()

    def run(self, dag_id: str, conf: Mapping[str, str], struck: Struck, after: float) -> tuple[str, int]:
        """Trigger a DAG, strike a service `after` seconds, and wait; its state, and how often a person cleared it."""
        run = self.airflow.trigger(dag_id, conf)
        self._strike(struck, after)
        for cleared in range(3):
            state = self.airflow.wait(run, PATIENCE)
            if state == "success":
                return state, cleared
            what = {"dag_run_id": run.run_id, "dry_run": False, "only_failed": True, "reset_dag_runs": True}
            self.airflow.post(f"/dags/{dag_id}/clearTaskInstances", what)
        return f"{self.airflow.wait(run, PATIENCE)}: {self.airflow.failures(run)}", 3

    def _strike(self, struck: Struck, after: float) -> None:
        if struck is Struck.APPLICATION:  # `after` counts from its start
            becomes_true(lambda: any(self._processes("submit/main.py")), within=120, every=0.5)
        time.sleep(after if struck is not Struck.NOTHING else 0)
        match struck:
            case Struck.NOTHING:
                return
            case Struck.APPLICATION:
                self._kill("submit/main.py")
            case Struck.BROKER:
                self.broker.kill()
                self.broker.start()
            case Struck.METASTORE:
                os.kill(self.metastore.pid or 0, signal.SIGKILL)
                self.metastore.stop()
                self.metastore.start()
            case Struck.SCHEDULER:
                self._kill("airflow scheduler")
                self.airflow.stop()
                self.airflow.start()

    def _kill(self, words: str) -> None:
        for process in self._processes(words):
            with suppress(psutil.Error):
                process.kill()

    def _processes(self, words: str) -> Iterator[psutil.Process]:
        """The processes of this world's Airflow, tasks included, whose command has these words.

        The API server writes its title over its environment, with its port.
        """
        for process in psutil.process_iter(["cmdline"]):
            with suppress(psutil.Error, OSError):
                command, of = " ".join(process.info["cmdline"] or []), process.environ().get("AIRFLOW_HOME")
                is_ours = of == str(self.airflow.directory) or f"port:{self.airflow.port}" in command
                if is_ours and words in command:
                    yield process

    def memory(self) -> dict[str, float]:
        """MiB of each service that stays from night to night."""
        found = {"broker": [self.broker.pid], "metastore": [self.metastore.pid]}
        for name in ("scheduler", "api_server", "dag-processor", "triggerer"):
            found[name] = [process.pid for process in self._processes(f"airflow {name}")]
        return {name: sum(_resident(pid) for pid in pids if pid) / 2**20 for name, pids in found.items()}

    def files(self) -> int:
        """How many files the tables have."""
        return sum(1 for path in self.warehouse.rglob("*") if path.is_file() and not path.name.startswith("."))


def _resident(pid: int) -> int:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.memory_info().rss + sum(child.memory_info().rss for child in process.children(recursive=True))
    return 0
