"""A deletion request: what is found of a person, what is deleted, what remains, and what is written down of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import destination_of
from spark_jobs.erasure.folders import Redactor, folders_of, found_in, redact
from spark_jobs.erasure.person import person_of
from spark_jobs.erasure.tables import Part, delete, gone_files_named, in_files, parts_of, purge, rows_of
from spark_jobs.errors import CatalogError, DefinitionError, RunStateError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, ensure_table, guarded, refuse_unpublished
from spark_jobs.operations.maintain import open_runs
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import canonical, empty_history, open_history
from spark_jobs.sources.erased import ERASURES, digest_of, erasures_table, text_digest


@dataclass(frozen=True)
class Request:
    """Who asked, and why. `where` names the person; `recomputed_by`: the run that computes the windows again."""

    where: str
    by: str
    reason: str
    recomputed_by: str | None = None


@dataclass(frozen=True)
class Found:
    """What there is of a person.

    Attributes:
        tables: Rows that readers see, by table.
        files: Rows in the files of each table, deleted and superseded ones too.
        documents: Documents of runs that have a value, by run.
        history: Records in the history itself, which stay.
    """

    tables: dict[str, int]
    files: dict[str, int]
    documents: dict[str, int]
    history: int

    @property
    def places(self) -> list[str]:
        """The tables and runs where Rewindow keeps something of the person."""
        counted = (self.tables, self.files, self.documents)
        return list(dict.fromkeys(name for counts in counted for name, count in counts.items() if count))


@dataclass(frozen=True)
class Forgotten:
    """What was found, what of it is left (None: nothing was deleted yet), and what Rewindow does not delete."""

    erasure: str
    found: Found
    left: Found | None
    remains: tuple[str, ...]


class Forgetting:
    """One person of one pipeline. Raises DefinitionError for a condition that is none, see `person_of`."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, where: str, store: RunStore | None = None) -> None:
        self._spark, self._pipeline = spark, pipeline
        self._store = store or RunStore.configured()
        self._tables = Tables.of(pipeline)
        refuse_unpublished(spark, self._tables)
        columns = canonical(empty_history(spark, pipeline), pipeline).columns
        self._person = person_of(spark, where, [name for name in columns if not name.startswith("rw_")])
        self._redactor = Redactor(self._person)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._person.columns

    def find(self) -> Found:
        """What there is of the person now; changes nothing."""
        return self._found(self._parts, 0 if self._records is None else self._records.count())

    def _found(self, parts: Sequence[Part], history: int) -> Found:
        return Found(
            {part.name: rows_of(self._spark, part).count() for part in parts},
            {part.in_catalog: in_files(self._spark, part) for part in parts if part.branch == ""},
            {f.run_id: n for f in folders_of(self._store, self._pipeline) if (n := len(found_in(f, self._redactor)))},
            history,
        )

    @cached_property
    def _records(self) -> DataFrame | None:
        """The person's records in the history."""
        read = canonical(open_history(self._spark, self._pipeline), self._pipeline)
        where = self._person.sql(read.columns)
        return None if where is None else read.where(where)

    @cached_property
    def _parts(self) -> list[Part]:
        records = self._records
        positions = None
        if records is not None and self._pipeline.history.position.offset is not None:
            positions = records.select(PARTITION, OFFSET).dropna()
        return parts_of(self._spark, self._tables, self._person, positions)

    def remains(self, found: Found) -> tuple[str, ...]:
        """What Rewindow does not delete, one sentence each."""
        said = [f"The history has {found.history} records of the person: delete them there, or wait for its retention."]
        if self._pipeline.live is not None:
            said.append("What the live job has written is its own.")
        if destination_of(self._pipeline) is not None:
            said.append("Corrections that were delivered are at their destination.")
        said.append("Backups and versions that an object store keeps have what they had; so have logs of Spark.")
        return tuple(said)

    def refuse(self, request: Request) -> None:
        """Raises where the request cannot be carried out now."""
        if not request.reason.strip():
            raise DefinitionError("why is missing", "--reason", "Write a ticket's number, for instance.")
        if self._redactor.text(f"{request.reason} {request.by}") != f"{request.reason} {request.by}":
            hint = "It is kept; write a ticket's number, for instance."
            raise DefinitionError("names the value that is to be forgotten", "--reason", hint)
        if waiting := open_runs(self._spark, self._tables):
            raise RunStateError(
                f"run {waiting[0]} is not at its end, and what it has staged may have the person's records",
                self._tables.windows,
                "Publish or discard it first, or wait for its end.",
            )
        changed = PublishedTable(self._spark, self._tables.windows).foreign_change()
        if changed is not None:
            hint = "Start a run over the whole history first, which compares with what is there."
            raise CatalogError(f"another program has changed the table: {changed}", self._tables.windows, hint)

    def carry_out(self, request: Request, progress: Progress, clock: Callable[[], datetime]) -> Forgotten:
        """Delete what there is of the person, and write down who asked, when and why.

        The register is written first: if the process is killed, no later run brings the person back, and the request
        can be repeated. Raises as `refuse` does, and CatalogError where a value is left in a file.
        """
        now = clock()
        recover(self._spark, self._tables, now, self._store, progress=progress)
        self.refuse(request)
        with progress.stage("find", self._tables.windows):
            found, parts = self.find(), self._parts
        erasure = f"{self._pipeline.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        with progress.stage("register", erasures_table(self._pipeline)):
            self._register(erasure, request, found, now)
        for table in dict.fromkeys(part.table for part in parts):
            with progress.stage("table", table):
                for part in (one for one in parts if one.table == table):
                    delete(self._spark, part)
        PublishedTable(self._spark, self._tables.windows).vouch_as_it_is()
        for table in dict.fromkeys(part.table for part in parts if found.files[part.in_catalog]):
            with progress.stage("files", table):
                purge(self._spark, self._tables, table, clock())
        with progress.stage("documents", self._store.url):
            for folder in folders_of(self._store, self._pipeline):
                redact(folder, self._redactor)
        return Forgotten(erasure, found, self._checked(found), self.remains(found))

    def _checked(self, before: Found) -> Found:
        left = self._found(self._parts, before.history)
        if left.places:
            hint = "Repeat the command when no other program writes there."
            raise CatalogError("the value is still there", ", ".join(left.places), hint)
        touched = [part for part in self._parts if part.branch == "" and before.files[part.in_catalog]]
        named = [part.in_catalog for part in touched if gone_files_named(self._spark, part)]
        if named:
            hint = "Repeat the command when no other program writes there."
            raise CatalogError("manifests name files that are gone, and their bounds", ", ".join(named), hint)
        return left

    def _register(self, erasure: str, request: Request, found: Found, now: datetime) -> None:
        """Write down the request, never the value: digests with a salt of its own keep it out of later runs."""
        spark, table, salt = self._spark, erasures_table(self._pipeline), secrets.token_hex(16)
        guarded("cannot make", table, lambda: ensure_table(spark, table, ERASURES))
        counts = {**found.tables, "documents": sum(found.documents.values()), "history": found.history}
        row = (
            erasure, self._pipeline.name, request.by, now, request.reason, list(self._person.columns), salt,
            self._people(salt), self._unusable(salt), counts, request.recomputed_by,
        )  # fmt: skip
        rows = spark.createDataFrame([row], ERASURES)
        guarded("cannot write", table, lambda: rows.writeTo(table).append())

    def _people(self, salt: str) -> list[tuple[list[str], str]]:
        return [
            ([name for name, _ in choice], digest_of(salt, (value for _, value in choice)))
            for choice in self._person.choices
        ]

    def _unusable(self, salt: str) -> Sequence[str]:
        """The digests of the texts of quarantined records that name the person."""
        parts = [part for part in self._parts if part.table == self._tables.quarantine]
        digest = text_digest(salt, F.col("raw"))
        rows = [row for part in parts for row in rows_of(self._spark, part).select(digest).distinct().collect()]
        return [row[0] for row in rows if row[0] is not None]
