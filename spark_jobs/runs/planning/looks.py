"""What a person asks about a pipeline in Airflow, and the answer: one document each. No Spark in this module.

The task of the DAG `look__<pipeline>` writes the question, its application the answer; a page shows both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from spark_jobs.definition.instants import InstantError, format_instant, parse_instant
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Document, DocumentPart
from spark_jobs.runs.life.store import RunFolder, RunStore, checked_run_id

KEPT = 50
"""So many answers of a pipeline are kept, the newest."""

_NAME = re.compile(r"look-\d{14}-([0-9a-f]{16})\.json")
_LONGEST_KEY = 200
_MOST_KEYS = 20


class Subject(StrEnum):
    """What a person can look at."""

    WINDOW = "window"
    LATE = "late"
    QUARANTINED = "quarantined"
    CORRECTIONS = "corrections"
    LIVE = "live"
    CUTOVER = "cutover"
    MEETING = "cutover_check"
    DOCTOR = "doctor"
    WHAT_IF = "what_if"

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES = {
    Subject.WINDOW: "The revisions of a window",
    Subject.LATE: "Late records",
    Subject.QUARANTINED: "Records in quarantine",
    Subject.CORRECTIONS: "Corrections that readers got",
    Subject.LIVE: "Whether the section `live:` fits the live job's output",
    Subject.CUTOVER: "Where a new live job begins that gives the windows from one on",
    Subject.MEETING: "Whether backfill and new live job meet",
    Subject.DOCTOR: "Whether a run has all that it needs here",
    Subject.WHAT_IF: "What other bounds and latenesses would give",
}
_BY_RUN = frozenset({Subject.LATE, Subject.QUARANTINED, Subject.CORRECTIONS})
_BY_WINDOW = frozenset({Subject.WINDOW, Subject.LATE, Subject.CUTOVER, Subject.MEETING})
_BY_KEYS = frozenset({Subject.WINDOW, Subject.LATE})
_NEED_WINDOW = frozenset({Subject.WINDOW, Subject.CUTOVER})


class Question(DocumentPart):
    """A question whose fields are checked.

    `window`: the start of a window, as ISO text in UTC. `keys`: pairs of key column and text; `null` means null. `run`:
    only rows of this run. `sets`: what other definitions set, one each.
    """

    what: Subject
    window: str | None = None
    keys: tuple[tuple[str, str], ...] = ()
    run: str | None = None
    sets: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Question:
        """The question of a form; fields that its subject does not use are left out.

        Raises DefinitionError that names the field.
        """
        texts = {name: str(fields.get(name) or "").strip() for name in ("what", "window", "keys", "run", "sets")}
        if texts["what"] not in set(Subject):
            subjects = ", ".join(Subject)
            raise DefinitionError(
                f"What: {texts['what'][:60]!r} is not to be looked at", "the form", f"Choose one of {subjects}."
            )
        what = Subject(texts["what"])
        window = _window_of(texts["window"]) if what in _BY_WINDOW else None
        if what in _NEED_WINDOW and window is None:
            raise DefinitionError("Window: its start is missing", "the form", "Write it like 2013-02-01T10:00:00Z.")
        keys = _keys_of(texts["keys"]) if what in _BY_KEYS else ()
        run = checked_run_id(texts["run"]) if texts["run"] and what in _BY_RUN else None
        lines = (line.strip() for line in texts["sets"].splitlines())
        sets = tuple(line for line in lines if line) if what is Subject.WHAT_IF else ()
        return cls(what=what, window=window, keys=keys, run=run, sets=sets)

    def refuse_other_keys(self, known: tuple[str, ...]) -> None:
        """Raise DefinitionError for a column that is not a key of the pipeline."""
        for name, _ in self.keys:
            if name not in known:
                keys = ", ".join(known) or "none"
                raise DefinitionError(f"Keys: {name!r} is not a key", "the form", f"The keys are: {keys}.")

    @property
    def start(self) -> int | None:
        """The window's start in epoch ms."""
        return None if self.window is None else parse_instant(self.window)

    def in_words(self) -> str:
        """The question as a title."""
        of = [f"window {self.window}"] if self.window else []
        of += [f"{name} {value}" for name, value in self.keys]
        of += [f"run {self.run}"] if self.run else []
        of += self.sets
        return f"{self.what.title}: {', '.join(of)}" if of else self.what.title


def _window_of(text: str) -> str | None:
    try:
        return format_instant(parse_instant(text)) if text else None
    except InstantError as problem:
        hint = problem.hint[:1].upper() + problem.hint[1:]
        raise DefinitionError(f"Window: {problem.what}", "the form", hint) from None


def _keys_of(text: str) -> tuple[tuple[str, str], ...]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _MOST_KEYS:
        raise DefinitionError(f"Keys: {len(lines)} lines", "the form", f"{_MOST_KEYS} are the most.")
    pairs = []
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or len(value) > _LONGEST_KEY:
            raise DefinitionError(
                f"Keys: {line[:60]!r}", "the form", f"Write name=value, a line for each key, {_LONGEST_KEY} characters."
            )
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


class Table(DocumentPart):
    """A part of an answer: a table of texts (None: null). `run`: a run whose report belongs to it."""

    title: str = ""
    run: str | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()


class Answer(DocumentPart):
    """What was found: in a sentence, then in tables. `is_well`: nothing that it names has to be mended."""

    sentence: str
    is_well: bool = True
    tables: tuple[Table, ...] = ()


class Look(Document):
    """A question and its answer. `problem`: why there is no answer; empty: there is one, or it is being looked for."""

    question: Question | None = None
    dag_run_id: str
    asked_by: str = ""
    asked_at: str
    answered_at: str = ""
    answer: Answer | None = None
    problem: str = ""
    hint: str = ""

    @property
    def has_ended(self) -> bool:
        return self.answer is not None or bool(self.problem)

    @property
    def title(self) -> str:
        return self.question.in_words() if self.question else "A question that was refused"


class Looks:
    """The kept questions and answers of a pipeline."""

    def __init__(self, store: RunStore, pipeline: str) -> None:
        self._folder: RunFolder = store.of_pipeline(pipeline)

    def name_of(self, dag_run_id: str, at: datetime) -> str:
        """The document of a DAG run: the one that it has, else a new name."""
        return self.found(dag_run_id) or f"look-{at.astimezone(UTC):%Y%m%d%H%M%S}-{_hash(dag_run_id)}.json"

    def found(self, dag_run_id: str) -> str | None:
        """The name of the document of a DAG run; None where there is none."""
        wanted = _hash(dag_run_id)
        return next((name for name in self.names() if name.endswith(f"-{wanted}.json")), None)

    def names(self) -> list[str]:
        """The names of the documents, the newest first."""
        return sorted((name for name in self._folder.documents() if _NAME.fullmatch(name)), reverse=True)

    def read(self, name: str) -> Look | None:
        """Raises DocumentError where it is damaged, DefinitionError for the name of another document."""
        return Look.read_as(self._folder, _checked(name))

    def write(self, name: str, look: Look) -> None:
        """Write a document, and remove the oldest ones beyond `KEPT`."""
        look.write_as(self._folder, _checked(name))
        for old in self.names()[KEPT:]:
            self._folder.remove(old)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{name[:60]!r} is not the name of an answer")
    return name


def _hash(dag_run_id: str) -> str:
    return hashlib.sha256(dag_run_id.encode()).hexdigest()[:16]
