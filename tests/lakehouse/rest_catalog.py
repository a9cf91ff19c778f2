"""An Iceberg REST catalog on the loopback interface, kept by PyIceberg in SQLite; it can do less than it must.

It answers what Iceberg's Java client sends when tables are made, changed and dropped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import SetSnapshotRefUpdate

_CODES: dict[type[Exception], tuple[int, str]] = {
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
    NotImplementedError: (406, "UnsupportedOperationException"),
}


class TwoBranches(StrEnum):
    """What the catalog does with a commit that moves two branches of a table."""

    MOVES = "moves"
    REFUSES = "refuses"
    MOVES_ONE = "moves one"


@contextmanager
def rest_catalog(
    folder: Path, two_branches: TwoBranches = TwoBranches.MOVES, store: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A catalog with its tables in `folder`, or in the object store of these properties; its address."""
    properties = {"warehouse": f"file://{folder}/warehouse", **(store or {})}
    catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", **properties)

    class Handler(_Handler):
        tables = catalog
        limit = two_branches

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        catalog.close()


class _Handler(BaseHTTPRequestHandler):
    tables: ClassVar[SqlCatalog]
    limit: ClassVar[TwoBranches]
    protocol_version = "HTTP/1.1"
    lock: ClassVar[threading.Lock] = threading.Lock()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        try:
            with self.lock:
                code, found = self._done(body)
        except tuple(_CODES) as problem:
            code, kind = next(_CODES[kind] for kind in type(problem).mro() if kind in _CODES)
            found = {"error": {"message": str(problem), "type": kind, "code": code}}
        data = b"" if code == 204 or self.command == "HEAD" else _json(found)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_HEAD = _answer

    def _done(self, body: dict[str, Any]) -> tuple[int, Any]:
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/") if part][1:]
        match [self.command, *parts]:
            case ["GET", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["GET", "namespaces"]:
                return 200, {"namespaces": self.tables.list_namespaces()}
            case ["POST", "namespaces"]:
                self.tables.create_namespace(".".join(body["namespace"]))
                return 200, {"namespace": body["namespace"], "properties": {}}
            case ["GET" | "HEAD", "namespaces", name]:
                if not self.tables.namespace_exists(name):
                    raise NoSuchNamespaceError(f"Namespace does not exist: {name}")
                return 200, {"namespace": [name], "properties": {}}
            case ["DELETE", "namespaces", name]:
                self.tables.drop_namespace(name)
                return 204, None
            case ["POST", "namespaces", _, "tables", _, "metrics"]:
                return 204, None
            case ["GET", "namespaces", name, "tables"]:
                return 200, {"identifiers": [{"namespace": [n], "name": t} for n, t in self.tables.list_tables(name)]}
            case ["POST", "namespaces", name, "tables"]:
                return 200, _shown(self._made(name, CreateTableRequest.model_validate(body)))
            case ["GET" | "HEAD", "namespaces", name, "tables", table]:
                return 200, _shown(self.tables.load_table((name, table)))
            case ["POST", "namespaces", name, "tables", table]:
                return 200, self._committed(name, table, body)
            case ["DELETE", "namespaces", name, "tables", table]:
                self.tables.drop_table((name, table))
                return 204, None
            case _:
                raise NoSuchTableError(f"{self.command} {self.path} is not known here")

    def _made(self, namespace: str, request: CreateTableRequest) -> Table:
        return self.tables.create_table(
            (namespace, request.name),
            request.table_schema,
            request.location,
            request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            request.write_order or UNSORTED_SORT_ORDER,
            request.properties,
        )

    def _committed(self, namespace: str, table: str, body: dict[str, Any]) -> Any:
        identifier = {"namespace": [namespace], "name": table}
        request = CommitTableRequest.model_validate({**body, "identifier": identifier})
        moves = [update for update in request.updates if isinstance(update, SetSnapshotRefUpdate)]
        updates = request.updates
        if len(moves) > 1 and self.limit is TwoBranches.REFUSES:
            raise NotImplementedError("a commit moves one branch of a table here")
        if len(moves) > 1 and self.limit is TwoBranches.MOVES_ONE:
            updates = tuple(update for update in updates if update not in moves[1:])
        return self.tables.commit_table(self.tables.load_table((namespace, table)), request.requirements, updates)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


def _shown(table: Table) -> TableResponse:
    return TableResponse.model_validate({"metadata-location": table.metadata_location, "metadata": table.metadata})


def _json(answer: Any) -> bytes:
    if hasattr(answer, "model_dump_json"):
        return answer.model_dump_json(by_alias=True, exclude_none=True).encode()
    return json.dumps(answer).encode()
