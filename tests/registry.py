"""A schema registry for tests: a real HTTP server that speaks Confluent's REST protocol, as far as readers use it."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

USER_INFO = "reader:s3cret-of-the-registry"
"""The credentials that a registry `with_access` wants."""


class SchemaRegistry:
    """Subjects with their versions, on a free port of this machine. `requests` counts what was asked."""

    def __init__(self, *, with_access: bool = False) -> None:
        self.with_access = with_access
        self.requests = 0
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._deleted: set[tuple[str, int]] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(
        self,
        subject: str,
        schema: Mapping[str, Any] | str,
        *,
        schema_id: int | None = None,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """The id of a new version of the subject."""
        chosen = schema_id or max(self._schemas, default=0) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self._schemas[chosen] = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {})
        if references:
            self._schemas[chosen]["references"] = list(references)
        self._subjects.setdefault(subject, []).append(chosen)
        return chosen

    def delete(self, subject: str, version: int) -> None:
        """Delete a version as Confluent's registry does first: it is not listed any more."""
        self._deleted.add((subject, version))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests += 1
                status, answer = registry.answer(self.path, self.headers.get("Authorization", ""))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, target: str, authorization: str) -> tuple[int, Any]:
        """The status and the JSON for a request."""
        wanted = f"Basic {base64.b64encode(USER_INFO.encode()).decode()}"
        if self.with_access and authorization != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(target)
        with_deleted = parse_qs(parts.query).get("deleted") == ["true"]
        found = re.fullmatch(r"/subjects/([^/]+)/versions(?:/(\d+))?", parts.path)
        if found is None:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        subject = unquote(found[1])
        numbers = [
            number
            for number, _ in enumerate(self._subjects.get(subject, ()), 1)
            if with_deleted or (subject, number) not in self._deleted
        ]
        if not numbers:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if found[2] is None:
            return 200, numbers
        if int(found[2]) not in numbers:
            return 404, {"error_code": 40402, "message": f"Version {found[2]} not found."}
        schema_id = self._subjects[subject][int(found[2]) - 1]
        return 200, {"subject": subject, "version": int(found[2]), "id": schema_id, **self._schemas[schema_id]}
