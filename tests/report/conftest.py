"""A real browser for the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-sync", "--no-first-run",
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


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """Chromium, or a skip that says what is missing."""
    pytest.importorskip("playwright", reason="the tests of the page need the Python package playwright")
    if find_chromium() is None:
        pytest.skip("no Chromium on the PATH (Debian: apt-get install chromium); set CHROMIUM to name one")
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium) -> Iterator[Callable]:
    """Opens a file in a page of its own. The page must log nothing and ask for nothing but the file itself."""
    contexts, own, said, asked = [], set(), [], []

    def open_page(path: Path, width: int = 1200, scheme: str = "light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        own.add(path.as_uri())
        page.goto(path.as_uri())
        return page

    yield open_page
    assert said == []
    assert {url.split("#")[0] for url in asked if not url.startswith("data:")} <= own
    for context in contexts:
        context.close()
