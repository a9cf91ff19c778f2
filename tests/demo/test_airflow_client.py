"""The client of an Airflow, against a server that answers as a locked SQLite makes Airflow answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from spark_jobs.demo.airflow import Airflow
from spark_jobs.errors import SourceError

LOCKED = {"detail": "Database is locked."}


@pytest.fixture
def answers() -> list[tuple[int, object]]:
    """What the server answers to one POST after the other; emptied as it does."""
    return []


@pytest.fixture
def airflow(answers: list[tuple[int, object]], tmp_path: Path) -> Iterator[Airflow]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = (201, {"access_token": "x"}) if self.path == "/auth/token" else answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "passwords.json").write_text('{"admin": "x"}')
        client = Airflow(tmp_path, project=tmp_path, port=server.server_port)
        yield client
        server.shutdown()


@pytest.mark.long
def test_a_post_waits_until_the_database_is_free(airflow: Airflow, answers: list[tuple[int, object]]) -> None:
    answers += [(503, LOCKED), (503, LOCKED), (200, {"id": 7})]
    assert airflow.post("/backfills", {}) == {"id": 7}
    assert not answers


@pytest.mark.long
def test_a_refusal_is_not_asked_again(airflow: Airflow, answers: list[tuple[int, object]]) -> None:
    answers += [(409, {"detail": "There is already a running backfill"}), (200, {})]
    with pytest.raises(SourceError, match=r"409.*already a running backfill"):
        airflow.post("/backfills", {})
    assert len(answers) == 1


@pytest.mark.long
def test_a_database_that_stays_locked_is_told(
    airflow: Airflow, answers: list[tuple[int, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.demo.airflow.LOCKED_SECONDS", 1)
    answers += [(503, LOCKED)] * 3
    with pytest.raises(SourceError, match=r"503.*Database is locked"):
        airflow.post("/backfills", {})
