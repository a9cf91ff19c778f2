"""A real browser for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser import launched_or_skipped


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    yield from launched_or_skipped()


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
