"""What OpenLineage is given of a task: which data a run reads, which tables it writes, and the run itself as a facet.

Only OpenLineage's provider calls this module, so it is imported only where the extra `openlineage` is installed. The
names of datasets follow OpenLineage's naming, so that they meet those of other tools: see docs/airflow.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import Dataset
from openlineage.client.facet_v2 import DatasetFacet, RunFacet, symlinks_dataset
from openlineage.client.naming.dataset import Hive, Kafka

from spark_jobs.addresses import public_address
from spark_jobs.definition import Pipeline
from spark_jobs.definition.corrections import FilesDestination
from spark_jobs.definition.deployments import deployments_of, destination_of
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory, TopicAccess
from spark_jobs.definition.live import FilesEmitted, Live, TableEmitted, TopicEmitted
from spark_jobs.formatting import told
from spark_jobs.orchestration.links import report_path
from spark_jobs.runs.life.documents import Outcome, Request, recorded_definition, status_of
from spark_jobs.runs.life.status import Stage
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.settings import more_conf, settings
from spark_jobs.spark.catalog import CATALOG, configured_catalog

FACET = "rewindow"
"""The name of the run facet."""

_METASTORE = "spark.hadoop.hive.metastore.uris"
_HIVE_PORT = 9083
_KAFKA_PORT = 9092
_CONTAINER_BEFORE_AT = ("abfs", "wasb")
"""Beginnings of schemes whose addresses have a container before an @."""
_GLOB = re.compile(r"[*?\[{]")
_TABLE = "TABLE"


@attr.define
class RewindowRunFacet(RunFacet):
    """The run facet `rewindow`. Instants are ISO text; fields are None or empty where the run has not come so far.

    `start`, `end`: the range of window starts. `asOf`: by partition, the end offset (exclusive) at which the history is
    cut. `processingTime`: what arrived up to this instant counts. `changes`: published windows by change.
    """

    runId: str
    pipeline: str
    kind: str
    status: str
    definitionHash: str
    definitionVersion: str
    start: str | None
    end: str | None
    asOf: dict[str, int]
    processingTime: str | None
    changes: dict[str, int]
    reason: str
    report: str

    _additional_skip_redact = ["asOf", "definitionHash"]  # noqa: RUF012


def lineage_of(folder: RunFolder, stage: Stage) -> OperatorLineage:
    """The lineage of a task that has carried out `stage` of a run, done or failed.

    Empty for a run whose definition could not be read. Raises as `Document.read` does.
    """
    request = Request.read(folder)
    pipeline = None if request is None else recorded_definition(folder, request)
    if request is None or pipeline is None:
        return OperatorLineage()
    inputs, outputs = _datasets(pipeline, folder, stage)
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets={FACET: _facet(folder, request)})


def _datasets(pipeline: Pipeline, folder: RunFolder, stage: Stage) -> tuple[list[Dataset], list[Dataset]]:
    windows = f"{pipeline.output.namespace}.{pipeline.output.table}"
    status = status_of(folder)
    is_published = status is not None and status.is_published
    if stage is Stage.CORRECT:
        return [iceberg(windows)], _destination(pipeline) if is_published else []
    inputs = history_of(pipeline)
    if stage is Stage.COMPARE:
        is_compared = Verdicts.read(folder) is not None
        lives = _lives(pipeline)
        emitted = _each_once(dataset for live in lives for dataset in _place(live.source))
        tables = [f"{windows}__verdicts", f"{windows}__comparisons"]
        if any(isinstance(live.source, TopicEmitted) for live in lives):
            tables.append(f"{windows}__emitted")
        return [*inputs, *emitted], [iceberg(name) for name in tables] if is_compared else []
    if stage in (Stage.PUBLISH, Stage.DISCARD) and is_published:
        return inputs, [iceberg(name) for name in (windows, f"{windows}__late", f"{windows}__quarantine")]
    return inputs, []


def history_of(pipeline: Pipeline) -> list[Dataset]:
    """The history: its files' folders, its Hive or lake table, its topic, or table and topic; all of a union's."""
    if pipeline.inputs:
        return _each_once(dataset for one in pipeline.inputs for dataset in history_of(one))
    history = pipeline.history
    if isinstance(history, FilesHistory):
        return files_of(history.path)
    if isinstance(history, HiveHistory):
        return [_hive(history.table, history.metastore)]
    if isinstance(history, TableHistory):
        return [_delta(history.table) if history.format == "delta" else _in_catalog(history.table)]
    if isinstance(history, StitchedHistory):
        past = history.past
        match past.lake_format:
            case "delta":
                table = _delta(past.table, past.metastore)
            case "iceberg":
                table = _in_catalog(past.table)
            case None:
                table = _hive(past.table, past.metastore)
        return [table, _topic(history.recent)]
    assert isinstance(history, KafkaHistory)
    return [_topic(history)]


def _in_catalog(table: str) -> Dataset:
    """An Iceberg table by its full name."""
    catalog, _, name = table.partition(".")
    return iceberg(name) if catalog == CATALOG else _dataset(catalog, name)


def _delta(table: str, metastore: str | None = None) -> Dataset:
    """A Delta table, by its folder or by its name in the metastore."""
    return _of_path(table) if "/" in table else _hive(table, metastore)


def iceberg(table: str) -> Dataset:
    """A table of the catalog `rewindow`, `namespace.table`.

    Where the catalog puts tables below its warehouse, the dataset is the table's folder, and its name in the catalog is
    a symlink, as OpenLineage's Spark integration has it. Else it is the name in the catalog.
    """
    properties = configured_catalog(settings().home)
    kind, uri = properties.get("type"), properties.get("uri", "")
    if kind == "hive":
        return _hive(table, uri)
    warehouse = properties.get("warehouse", "")
    address = (uri and public_address(uri)) or warehouse
    if kind not in ("jdbc", "hadoop"):
        return _dataset(address or CATALOG, table)
    folder = _of_path(f"{warehouse.rstrip('/')}/{table.replace('.', '/')}")
    name = symlinks_dataset.Identifier(namespace=told(address), name=told(table), type=_TABLE)
    return _dataset(folder.namespace, folder.name, {"symlinks": symlinks_dataset.SymlinksDatasetFacet([name])})


def _dataset(namespace: str, name: str, facets: dict[str, DatasetFacet] | None = None) -> Dataset:
    """A dataset whose names are visible text on a line: a definition can hold anything."""
    return Dataset(told(namespace), told(name), facets=facets)


def _lives(pipeline: Pipeline) -> list[Live]:
    """The section `live:` of each deployment of the live job."""
    lives = (deployed.pipeline.live for deployed in deployments_of(pipeline))
    return [live for live in lives if isinstance(live, Live)]


def _destination(pipeline: Pipeline) -> list[Dataset]:
    destination = destination_of(pipeline)
    return _place(destination) if destination is not None else []


def _place(place: FilesEmitted | TableEmitted | TopicEmitted | FilesDestination) -> list[Dataset]:
    if isinstance(place, TableEmitted):
        return [_table(place.table)]
    if isinstance(place, TopicEmitted):
        return [_topic(place)]
    return files_of((place.path,) if isinstance(place.path, str) else place.path)


def _table(name: str) -> Dataset:
    """A table as Spark names it: of the metastore, of the catalog `rewindow`, or of another catalog."""
    catalog, _, table = name.partition(".")
    if "." not in table:
        return _hive(name, None)
    return iceberg(table) if catalog == CATALOG else _dataset(catalog, table)


def _topic(access: TopicAccess) -> Dataset:
    """A topic, by the first of its servers."""
    host, _, port = access.servers.split(",")[0].strip().rpartition(":")
    if not host:  # without a port
        host, port = port, str(_KAFKA_PORT)
    kafka = Kafka(bootstrap_server_host=host, port=port, topic=access.topic)
    return _dataset(kafka.get_namespace(), kafka.get_name())


def _hive(table: str, metastore: str | None) -> Dataset:
    """A table of a metastore; None: that of the Spark session."""
    uri = urlsplit((metastore or more_conf().get(_METASTORE) or "").split(",")[0])
    if not uri.hostname:
        return _dataset("hive", table)
    database, _, name = table.rpartition(".")
    hive = Hive(uri.hostname, str(uri.port or _HIVE_PORT), database or "default", name)
    return _dataset(hive.get_namespace(), hive.get_name())


def files_of(paths: Iterable[str]) -> list[Dataset]:
    """The folders or files: of a glob, the folder above it."""
    return _each_once(_of_path(path) for path in paths)


def _each_once(datasets: Iterable[Dataset]) -> list[Dataset]:
    return list({(dataset.namespace, dataset.name): dataset for dataset in datasets}.values())


def _of_path(path: str) -> Dataset:
    glob = _GLOB.search(path)
    plain = path[: glob.start()].rpartition("/")[0] if glob else path
    scheme, separator, rest = plain.partition("://")
    if not separator or scheme == "file":
        return _dataset("file", (rest if separator else plain.removeprefix("file:")).rstrip("/") or "/")
    authority, _, name = rest.partition("/")
    if not scheme.lower().startswith(_CONTAINER_BEFORE_AT):  # else a user stands there, and often a password
        authority = authority.rpartition("@")[2]
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    return _dataset(f"{scheme}://{authority}", name.rstrip("/") or "/")


def _facet(folder: RunFolder, request: Request) -> RewindowRunFacet:
    plan, outcome = Plan.read(folder), Outcome.read(folder)
    return RewindowRunFacet(
        runId=folder.run_id,
        pipeline=request.pipeline,
        kind=request.kind.value,
        status=outcome.status.value if outcome else "running",
        definitionHash=request.definition_hash,
        definitionVersion=request.definition_version,
        start=plan and format_instant(plan.span.start),
        end=plan and format_instant(plan.span.end),
        asOf={str(partition): end for partition, end in plan.as_of.items()} if plan else {},
        processingTime=plan and format_instant(plan.processing_time_end),
        changes=dict(outcome.changes) if outcome else {},
        reason=told(request.reason),
        report=report_path(folder.run_id),
    )
