"""Services around a run that are slow, cut answers, restart, fall silent or lie: at each stage, each of them.

Whatever happens, the run ends in time: well, or with one sentence. Nothing is left behind, and when the service is well
again the same run gives the tables of one that nobody disturbed. The matrix has a test for each service, stage and
fault; `make test` has two.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.demo.ports import free_port
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.documents import status_of
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.settings import Variable
from spark_jobs.spark.gateway import session_state
from spark_jobs.spark.session import spark_session
from tests.faults.boundaries import watched_steps
from tests.faults.proxy import Fault, Proxy
from tests.kafka import Sent, produce
from tests.lakehouse.rest_catalog import rest_catalog
from tests.registry import SchemaRegistry
from tests.runs.small_nights import log_of, pipeline, tables_of
from tests.runs.small_runs import T0, definition_text, write
from tests.services.hive_metastore import HiveMetastore
from tests.services.object_store import BUCKET, FILE_IO, S3A, client, environment_of, file_io_of, object_store, s3a_of
from tests.services.postgresql import DRIVER, catalog_of, postgresql
from tests.sources.avro import framed, zigzag

SECONDS = 300
"""In which each run must have ended; the services' own limits are a few seconds here."""


class Service(StrEnum):
    """What a run needs around it."""

    REST_CATALOG = "REST catalog"
    HIVE_CATALOG = "Hive catalog"
    POSTGRESQL_CATALOG = "PostgreSQL catalog"
    KAFKA = "Kafka"
    REGISTRY = "schema registry"
    RUN_STORE = "object store of the documents"
    TABLE_STORE = "object store of the tables"
    FILE_STORE = "object store of the history"


class Stage(StrEnum):
    """When the fault begins: the boundary of a run before which it does."""

    PLAN = ""
    STAGE = "before prepare"
    PUBLISH = "before save_state"
    MOVE = "before move"


@dataclass(frozen=True)
class Surrounding:
    """A service behind a proxy, and what makes a pipeline that needs it."""

    spark: SparkSession
    proxy: Proxy
    defined: Callable[[str], Pipeline]
    runs: str | None = None
    """`REWINDOW_RUNS`, where it is another one than that of all tests."""

    @cached_property
    def right(self) -> list[list[str]]:
        """The tables of a run that nobody disturbs."""
        undisturbed = self.defined("undisturbed")
        reconcile(self.spark, undisturbed, NoProgress())
        return tables_of(self.spark, undisturbed)


@pytest.fixture(scope="module")
def surroundings(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Service], Surrounding]]:
    """Starts what a test needs, once a module."""
    started: dict[Service, Iterator[Surrounding]] = {}
    known: dict[Service, Surrounding] = {}
    starts = {
        Service.REST_CATALOG: _rest_catalog,
        Service.HIVE_CATALOG: lambda spark, folder: _hive_catalog(folder, request.getfixturevalue("hive_metastore")),
        Service.POSTGRESQL_CATALOG: _postgresql_catalog,
        Service.KAFKA: _kafka,
        Service.REGISTRY: _registry,
        Service.RUN_STORE: _run_store,
        Service.TABLE_STORE: _table_store,
        Service.FILE_STORE: _file_store,
    }

    def surrounding(service: Service) -> Surrounding:
        if service not in known:
            started[service] = starts[service](spark, tmp_path_factory.mktemp("service"))
            known[service] = next(started[service])
        return known[service]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWINDOW_CATALOG_SECONDS", "3")
        patch.setenv("REWINDOW_STORE_SECONDS", "1")
        yield surrounding
    for running in started.values():
        next(running, None)


def _rest_catalog(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    with rest_catalog(folder) as address:
        at = urlsplit(address)
        with Proxy(at.hostname or "", at.port or 0) as proxy:
            catalog = {"type": "rest", "uri": f"http://127.0.0.1:{proxy.port}"}
            yield Surrounding(spark_session("rest catalog", catalog=catalog), proxy, _of_files(folder))


def _hive_catalog(folder: Path, metastore: HiveMetastore) -> Iterator[Surrounding]:
    with Proxy("127.0.0.1", metastore.port) as proxy:
        catalog = {
            "type": "hive",
            "uri": f"thrift://127.0.0.1:{proxy.port}",
            "warehouse": str(folder / "warehouse"),
        }
        yield Surrounding(spark_session("hive catalog", catalog=catalog), proxy, _of_files(folder))


def _postgresql_catalog(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    with postgresql() as at, Proxy(*at) as proxy:
        catalog = catalog_of("127.0.0.1", proxy.port, str(folder / "warehouse"))
        yield Surrounding(spark_session("postgresql catalog", catalog=catalog), proxy, _of_files(folder))


def _run_store(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    with object_store(folder) as at, Proxy(*at) as proxy, environment_of("127.0.0.1", proxy.port):
        yield Surrounding(spark, proxy, _of_files(folder), "s3://lake/runs")


def _table_store(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    with (
        object_store(folder) as at,
        Proxy(*at) as proxy,
        rest_catalog(folder, store=file_io_of(*at)) as address,
    ):
        catalog = {
            "type": "rest",
            "uri": address,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            **file_io_of("127.0.0.1", proxy.port),
        }
        yield Surrounding(spark_session("tables in a store", catalog=catalog), proxy, _of_files(folder))


def _file_store(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    write(folder / "data", log_of(17, count=60), "part-0.json")
    with object_store(folder) as at, Proxy(*at) as proxy, s3a_of(spark, "127.0.0.1", proxy.port):
        client(*at).upload_file(str(folder / "data" / "part-0.json"), BUCKET, "data/part-0.json")

        def defined(name: str) -> Pipeline:
            path = folder / f"{name}.yaml"
            path.write_text(definition_text(name, f"s3a://{BUCKET}/data", namespace="nightly_tests"))
            return load_pipeline(path)

        yield Surrounding(spark, proxy, defined)


def _of_files(folder: Path) -> Callable[[str], Pipeline]:
    write(folder / "data", log_of(17, count=60), "part-0.json")
    return lambda name: pipeline(folder, name, "tumbling, per event")


def _kafka(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    with _broker(folder) as (broker, proxy):
        value = "{format: json, schema: 'k STRING, t BIGINT, v BIGINT'}"
        records = [{"k": "a", "t": T0 + 1000 * n, "v": n} for n in range(60)]
        broker.create_topic("plain", 1, APPEND_TIME)
        produce(spark, broker.servers, "plain", [Sent(json.dumps(record)) for record in records])
        yield Surrounding(spark, proxy, lambda name: _of_topic(folder, name, proxy.port, "plain", value))


def _registry(spark: SparkSession, folder: Path) -> Iterator[Surrounding]:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "k", "type": "string"}, {"name": "t", "type": "long"}, {"name": "v", "type": "long"}],
    }
    with _broker(folder) as (broker, _), SchemaRegistry() as registry:
        number = registry.register("of_schema-value", schema)
        at = urlsplit(registry.url)
        broker.create_topic("of_schema", 1, APPEND_TIME)
        produce(spark, broker.servers, "of_schema", [Sent(_avro(number, T0 + 1000 * n, n)) for n in range(60)])
        with Proxy(at.hostname or "", at.port or 0) as proxy:
            value = f"{{format: avro, registry: {{url: 'http://127.0.0.1:{proxy.port}', subject: of_schema-value}}}}"
            port = int(broker.servers.rpartition(":")[2])
            yield Surrounding(spark, proxy, lambda name: _of_topic(folder, name, port, "of_schema", value))


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[KafkaBroker, Proxy]]:
    """A broker that tells its clients the address of a proxy before it."""
    port = free_port()
    with Proxy("127.0.0.1", port) as proxy:
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        broker = KafkaBroker(folder / "kafka", port=port, heap="256m", settings=told).start()
        try:
            yield broker, proxy
        finally:
            proxy.set(Fault.NONE)
            broker.kill()


def _avro(number: int, time_ms: int, value: int) -> bytes:
    """Confluent's frame and a record of `k`, `t`, `v`."""
    return framed(number, zigzag(1) + b"a" + zigzag(time_ms) + zigzag(value))


def _of_topic(folder: Path, name: str, port: int, topic: str, value: str) -> Pipeline:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"""name: {name}
history: {{kind: kafka, servers: '127.0.0.1:{port}', topic: {topic}, read_timeout: 4 s}}
value: {value}
keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{generator: bounded_out_of_orderness, bound: 10 s, emission: per_event}}
window: {{type: tumbling, size: 1 min}}
aggregates: {{n: count(*), total: sum(v)}}
output: {{namespace: nightly_tests}}
"""
    )
    return load_pipeline(path)


FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
MATRIX = list(itertools.product(Service, Stage, FAULTS))
IN_SHORT = {
    (Service.HIVE_CATALOG, Stage.PUBLISH, Fault.FOREIGN),
    (Service.RUN_STORE, Stage.PUBLISH, Fault.FOREIGN),
}
NUMBERS = itertools.count()
JARS = {
    Service.POSTGRESQL_CATALOG: DRIVER,
    Service.TABLE_STORE: FILE_IO,
    Service.FILE_STORE: S3A,
}


def _marks(cell: tuple[Service, Stage, Fault]) -> list[pytest.MarkDecorator]:
    """A long test, but for two; and the jars that it needs."""
    jars = [pytest.mark.packages(JARS[cell[0]])] if cell[0] in JARS else []
    return jars if cell in IN_SHORT else [pytest.mark.long, *jars]


@pytest.mark.parametrize(
    ("service", "stage", "fault"),
    [pytest.param(*cell, marks=_marks(cell)) for cell in MATRIX],
)
def test_a_fault_of_a_service_loses_nothing_and_is_told_in_a_sentence(
    surroundings: Callable[[Service], Surrounding],
    monkeypatch: pytest.MonkeyPatch,
    service: Service,
    stage: Stage,
    fault: Fault,
) -> None:
    around = surroundings(service)
    if around.runs:
        monkeypatch.setenv(Variable.RUNS, around.runs)
    right = around.right
    assert right[0], "there are windows"

    disturbed = around.defined(f"disturbed_{next(NUMBERS)}")
    began = time.monotonic()
    problem = _run(around, disturbed, stage, fault)
    assert time.monotonic() - began < SECONDS
    if problem is not None:
        assert "\n" not in str(problem) and problem.hint, problem
    session_state(around.spark).catalogManager().reset()  # as in another process, which has connections of its own
    reconcile(around.spark, disturbed, NoProgress())
    assert tables_of(around.spark, disturbed) == right
    reconcile(around.spark, disturbed, NoProgress())
    assert tables_of(around.spark, disturbed) == right
    runs = Ledger(around.spark, Tables.of(disturbed)).runs().collect()
    assert [row["status"] for row in runs].count(RunStatus.PUBLISHED) == 1, "nothing is published twice"
    ended = {RunStatus.PUBLISHED, RunStatus.FAILED, RunStatus.ABANDONED}
    assert {row["status"] for row in runs} <= ended, "no claim is left behind"
    for row in runs:
        folder = RunStore.configured().folder(row["run_id"])
        assert not folder.documents() or status_of(folder) == row["status"], "documents follow the ledger"


def _run(around: Surrounding, defined: Pipeline, stage: Stage, fault: Fault) -> RewindowError | None:
    """Reconcile while the fault begins at the stage; what the run said, None where it ended well."""

    def boundary(name: str) -> None:
        if name == stage:
            around.proxy.set(fault)

    boundary("")
    try:
        with watched_steps(boundary):
            reconcile(around.spark, defined, NoProgress())
    except RewindowError as problem:
        return problem
    finally:
        around.proxy.set(Fault.NONE)
    return None
