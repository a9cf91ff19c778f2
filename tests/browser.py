"""A real browser for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
)  # fmt: skip


def find_chromium() -> str | None:
    """The Chromium of this machine: $CHROMIUM, or one on the PATH."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def launched() -> Iterator:
    """Playwright's handle of a running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def launched_or_skipped() -> Iterator:
    """For a fixture: Chromium, or a skip that says what is missing."""
    pytest.importorskip("playwright", reason="the tests of pages need the Python package playwright")
    if find_chromium() is None:
        pytest.skip("no Chromium on the PATH (Debian: apt-get install chromium); set CHROMIUM to name one")
    with launched() as browser:
        yield browser
