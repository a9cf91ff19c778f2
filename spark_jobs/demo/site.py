"""The pages of `docs/` as `make docs` has built them, on a port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

SITE = Path("build/site")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal shows what Airflow does."""


@contextmanager
def served_site(folder: Path = SITE, port: int = 0) -> Iterator[str | None]:
    """The address of the site on 127.0.0.1 while the block runs; None where it has not been built. 0: any free port."""
    if not (folder / "index.html").is_file():
        yield None
        return
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, name="docs", daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
