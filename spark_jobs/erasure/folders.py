"""A person's values in the documents of runs: found, and replaced; reports are drawn anew from what is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.erasure.person import Person
from spark_jobs.erasure.tables import ERASED
from spark_jobs.errors import RewindowError
from spark_jobs.report.build import build_report
from spark_jobs.runs.life.documents import Request
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder, RunStore


@dataclass(frozen=True)
class Redactor:
    """Replaces a person's values.

    A value is a word of its own in a text, a number beside the name of its column, or a key. A number of up to five
    digits may be anything, so it is a value only where its column is named.
    """

    person: Person

    def document(self, content: Any, name: str = "") -> Any:
        """The content of a JSON document without the values; `name`: of the field that has it."""
        if isinstance(content, dict):
            return {self.text(key): self.document(value, key) for key, value in content.items()}
        if isinstance(content, list):
            return [self.document(value, name) for value in content]
        if isinstance(content, bool) or content is None:
            return content
        if str(content) in self.person.values.get(name, ()):
            return ERASED
        if isinstance(content, str):
            return self.text(content)
        words = self.person.words
        return ERASED if words is not None and words.fullmatch(str(content)) else content

    def text(self, text: str) -> str:
        """A text without the values."""
        words = self.person.words
        text = text if words is None else words.sub(ERASED, text)
        for column, values in self.person.values.items():
            for value in values:
                named = rf"(\b{re.escape(column)}\W{{1,3}}){re.escape(value)}(?!\w)"
                text = re.sub(named, rf"\g<1>{ERASED}", text)
        return text


def folders_of(store: RunStore, pipeline: Pipeline) -> Iterator[RunFolder]:
    """The folders of the pipeline's runs, and what is known of it beside them."""
    yield store.of_pipeline(pipeline.name)
    for run_id in store.run_ids():
        folder = store.folder(run_id)
        with suppress(RewindowError, ValueError):
            request = Request.read(folder)
            if request is not None and request.pipeline == pipeline.name:
                yield folder


def found_in(folder: RunFolder, redactor: Redactor) -> list[str]:
    """The documents of a folder that have a value. The definition stays as it is; a timeline has no values."""
    return list(_redacted(folder, redactor))


def _redacted(folder: RunFolder, redactor: Redactor) -> dict[str, bytes]:
    """The documents of a folder that have a value, as they are without it."""
    names = (name for name in folder.documents() if name.endswith((".json", ".html", ".xml")))
    read = ((name, _without(folder, name, redactor)) for name in names)
    return {name: without for name, without in read if without is not None}


def _without(folder: RunFolder, name: str, redactor: Redactor) -> bytes | None:
    """The document without the values; None: it has none. What cannot be read as JSON is read as text."""
    data = folder.read_bytes(name) or b""
    text = data.decode(errors="replace")
    if name.endswith(".json"):
        with suppress(ValueError):
            content = json.loads(text)
            without = redactor.document(content)
            return None if without == content else json.dumps(without, indent=2, sort_keys=True).encode()
    without = redactor.text(text)
    return None if without == text else without.encode()


def redact(folder: RunFolder, redactor: Redactor) -> int:
    """Replace the values in the documents of a folder; how many documents had one."""
    found = _redacted(folder, redactor)
    for name, without in found.items():
        folder.write_bytes(name, without)
    if found and {PAGE, REPORT} & set(folder.documents()):
        _draw_again(folder, redactor)
    return len(found)


def _draw_again(folder: RunFolder, redactor: Redactor) -> None:
    """Draw the report of the documents without the values; a page that cannot be drawn, or still has one, goes."""
    try:
        build_report(folder)
    except Exception:  # whatever documents without values lead to
        folder.remove(PAGE)
        folder.remove(REPORT)
    for name in found_in(folder, redactor):
        folder.remove(name)
