"""The site of the documents on a port of this machine."""

from __future__ import annotations

from pathlib import Path

import httpx

from spark_jobs.demo.site import served_site


def test_a_site_that_is_built_is_served_and_one_that_is_not_has_no_address(tmp_path: Path) -> None:
    with served_site(tmp_path) as address:
        assert address is None
    (tmp_path / "index.html").write_text("documents")
    with served_site(tmp_path) as address:
        assert address is not None
        assert httpx.get(address).text == "documents"
