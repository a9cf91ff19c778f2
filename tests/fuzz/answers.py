"""What a schema registry answers, over a real connection: any status, any bytes, a body that ends early."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hypothesis import strategies as st

from spark_jobs.definition.payload import Registry
from spark_jobs.pins import PinnedSchemas
from spark_jobs.sources.records.registry import versions_of
from tests.fuzz import mutations
from tests.fuzz.limits import Limit
from tests.fuzz.search import Kind

_RECORD = {"type": "record", "name": "r", "fields": [{"name": "ts", "type": "long"}]}
_VERSION = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(_RECORD)}
_REFERRING = {**_VERSION, "version": 2, "id": 8, "references": [{"name": "r", "subject": "base", "version": 1}]}
_ERROR = {"error_code": 40401, "message": "Subject not found."}
_STATUSES = (200, 200, 200, 200, 204, 301, 401, 404, 409, 422, 500)

Answer = tuple[int, bytes, int]
"""A status, a body, and by how many bytes the header gives a longer one."""


class _Server:
    """Answers each path by its last parts: the lists of versions, version 1, version 2, anything else."""

    def __init__(self) -> None:
        self.answers: Mapping[str, Answer] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body, missing = server.answers.get(_place(self.path), (404, b"{}", 0))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + missing))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"


def _place(path: str) -> str:
    plain = path.partition("?")[0]
    if plain.endswith("/versions"):
        return "deleted" if "deleted" in path else "list"
    return "other" if "orders-value" not in plain else plain.rpartition("/")[2]


@cache
def _server() -> _Server:
    return _Server()


@st.composite
def _answers(draw: st.DrawFn) -> dict[str, Answer]:
    bodies: dict[str, Any] = {"list": [1, 2], "deleted": [1, 2], "1": _VERSION, "2": _REFERRING, "other": _VERSION}
    found = {name: (200, json.dumps(body).encode(), 0) for name, body in bodies.items()}
    for name in draw(st.lists(st.sampled_from(sorted(bodies)), min_size=1, max_size=3)):
        body = draw(mutations.as_json(mutations.changed([bodies[name], _ERROR])))
        missing = draw(st.sampled_from((0, 0, 0, 0, 1, 100)))
        found[name] = draw(st.sampled_from(_STATUSES)), body, missing
    return found


def read_answers(answers: Mapping[str, Answer]) -> None:
    """Ask a registry that gives these answers for the versions of a subject."""
    server = _server()
    server.answers = answers
    registry = Registry(url=server.url, subject="orders-value")
    found = versions_of(registry)
    pinned = PinnedSchemas("orders-value", None, "", {version.id: version.text for version in found})
    assert pinned.digests and pinned.description
    assert all(isinstance(version.text, str) and 0 <= version.id < 2**32 for version in found)


def _shown(answers: Mapping[str, Answer]) -> str:
    return f"{ ({name: (one[0], mutations.shown_bytes(one[1]), one[2]) for name, one in answers.items()})!r:.2000}"


def registry_kind() -> Kind:
    """Answers of a schema registry. Threads that ask it have much address space of their own."""
    return Kind("registry", _answers(), read_answers, Limit(seconds=10, megabytes=4096), _shown)
