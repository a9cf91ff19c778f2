"""The expectations of a pipeline: reviewed files in Great Expectations' own suite format; no GX in this module.

`expectations/input.json`, `windows.json`, `reconciliation.json` and `live.json` are common to all pipelines; the name
is the kind of data that they check. `<pipeline>.json` is one pipeline's own; its `meta.data`, of the suite or of an
expectation, is the kind of data. Rewindow also reads, of an expectation's `meta`: `name` (unique in its file, for
people and other files), `when` (conditions, see `spark_jobs.quality.resolve`) and `by` (`day`: each day is checked on
its own); of the suite's `meta`: `leave_out`, the common expectations that do not fit this pipeline, such as
`windows/keys-not-null`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import nearest
from spark_jobs.definition.project import project_folder
from spark_jobs.definition.yaml_tree import FieldPath, SourceMap, dotted, read_tree
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.settings import Variable, settings


class Data(StrEnum):
    """The data that an expectation checks; `spark_jobs.quality.columns` documents their columns."""

    INPUT = "input"
    WINDOWS = "windows"
    RECONCILIATION = "reconciliation"
    LIVE = "live"

    @property
    def is_required(self) -> bool:
        """Whether a folder of expectations must have the common suite; one about the live job came later."""
        return self is not Data.LIVE


class Severity(StrEnum):
    """Great Expectations' severities. A failed critical one closes the gate, a warning is shown, info is recorded."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class By(StrEnum):
    """What divides the rows of an expectation into parts that are checked each on its own."""

    DAY = "day"


CONDITIONS = {
    "grid": "windows lie on a regular grid (tumbling, sliding, cumulative; no time zone)",
    "sessions": "windows are sessions",
    "not_sessions": "windows are no sessions",
    "backfill": "the run is a backfill",
    "reconcile": "the run is a reconciliation",
}
"""What `meta.when` may name."""


NOT_BY_DAY = {
    Data.INPUT: "has a row for each partition, and no days",
    Data.RECONCILIATION: "has a row for each day, so that a result names the day as it is",
    Data.LIVE: "has a row for each day, so that a result names the day as it is",
}
"""The data whose rows cannot be checked by day, and why."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation as written.

    `place`: its path in the file. `name`: empty if it has none. `by`: None: all rows are checked together.
    """

    data: Data
    type: str
    kwargs: Mapping[str, Any]
    severity: Severity
    description: str
    name: str
    when: tuple[str, ...]
    place: FieldPath
    by: By | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """One file. `leave_out` names common expectations, `data/name`, that are not checked for this pipeline."""

    name: str
    file: str
    expectations: tuple[Expectation, ...]
    leave_out: frozenset[str] = frozenset()

    @property
    def data(self) -> tuple[Data, ...]:
        """The kinds of data that its expectations check."""
        return tuple(data for data in Data if any(e.data is data for e in self.expectations))

    def problem(self, place: FieldPath, what: str, hint: str = "") -> Problem:
        """A problem of this file, with the line of the place."""
        return Problem(self.file, _lines_of(self.file).line(place), dotted(place), what, hint)


@dataclass(frozen=True, slots=True)
class Suites:
    """All suites of a pipeline: the common ones first, then its own."""

    folder: str
    suites: tuple[Suite, ...]

    @property
    def left_out(self) -> frozenset[str]:
        """Common expectations, as `data/name`, that a suite leaves out."""
        return frozenset().union(*(suite.leave_out for suite in self.suites))


def expectations_folder(pipeline: Pipeline) -> Path:
    """`$REWINDOW_EXPECTATIONS`; else `expectations` in the project of the pipeline's file, else `./expectations`."""
    if (named := settings().expectations) is not None:
        return named.expanduser()
    if pipeline.file:
        beside = project_folder(pipeline.file) / "expectations"
        if beside.is_dir():
            return beside
    return Path("expectations")


def load_suites(pipeline: Pipeline, folder: Path | None = None) -> Suites:
    """The common suites and the pipeline's own, checked as far as possible without Great Expectations.

    Raises:
        DefinitionError: it lists every problem with its file, line and what to write.
    """
    folder = folder or expectations_folder(pipeline)
    if not folder.is_dir():
        raise DefinitionError(
            "there is no folder of expectations",
            str(folder),
            f"Take the common suites from Rewindow's `expectations/`, or set {Variable.EXPECTATIONS}.",
        )
    problems: list[Problem] = []
    suites: list[Suite] = []
    for data in Data:
        if data.is_required or (pipeline.live is not None and pipeline.name != data):
            suites += _loaded(folder / f"{data}.json", data, problems, required=data.is_required)
    if pipeline.name in {data for data in Data if data.is_required}:
        where = pipeline.source_of(("name",)) or pipeline.name
        raise DefinitionError(f"`{pipeline.name}` is the name of a common suite", where, "Name the pipeline otherwise.")
    suites += _loaded(folder / f"{pipeline.name}.json", None, problems, required=False)
    known = {f"{e.data}/{e.name}" for suite in suites for e in suite.expectations if e.name}
    for suite in suites:
        for name in sorted(suite.leave_out - known):
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else "`rewindow expectations list` shows the names"
            problems.append(suite.problem(("meta", "leave_out"), f"no expectation is called `{name}`", hint))
    if problems:
        raise DefinitionError.listing(problems)
    return Suites(str(folder), tuple(suites))


def _loaded(path: Path, data: Data | None, problems: list[Problem], *, required: bool) -> Iterable[Suite]:
    """The suite of a file; empty if it has problems, which are added to `problems`."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            problems.append(
                Problem(str(path), 1, "", "there is no such file", "take it from Rewindow's `expectations/`")
            )
        return ()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not UTF-8 text"
        problems.append(Problem(str(path), 1, "", f"cannot be read: {reason}", "save it as a JSON file in UTF-8"))
        return ()
    try:
        written = json.loads(text)
    except (ValueError, RecursionError) as problem:  # also too deep, or a number of too many digits
        line = getattr(problem, "lineno", 1)
        problems.append(Problem(str(path), line, "", f"not JSON: {problem}", "correct it, or draft it again"))
        return ()
    reader = _Reader(str(path), written, data)
    suite = reader.suite()
    problems += reader.problems
    return () if reader.problems or suite is None else (suite,)


_SUITE_FIELDS = {"name", "expectations", "meta", "notes", "id", "suite_parameters"}
_FIELDS = {"type", "kwargs", "severity", "meta", "description", "notes", "id"}
_META = {"data", "name", "when", "by"}
_RUNTIME = {"result_format", "catch_exceptions"}


class _Reader:
    """Reads one file's content and collects its problems."""

    def __init__(self, file: str, written: Any, data: Data | None) -> None:
        self._file = file
        self._written = written
        self._data = data
        self.problems: list[Problem] = []

    def suite(self) -> Suite | None:
        written = self._written
        if not isinstance(written, dict) or not isinstance(written.get("expectations"), list):
            self._report((), "not an expectation suite", 'write {"name": ..., "expectations": [...]}')
            return None
        self._refuse_unknown(written, _SUITE_FIELDS, ())
        name = written.get("name")
        if not isinstance(name, str) or not name.strip():
            self._report(("name",), "the suite has no name", "give it one")
            name = ""
        meta = self._object(written, "meta", ())
        leave_out = meta.get("leave_out", [])
        if not isinstance(leave_out, list) or not all(isinstance(item, str) for item in leave_out):
            self._report(("meta", "leave_out"), "not a list of names", "write names as `windows/keys-not-null`")
            leave_out = []
        expectations = [
            read
            for index, item in enumerate(written["expectations"])
            if (read := self._expectation(item, ("expectations", index), meta)) is not None
        ]
        self._refuse_same_names(expectations)
        return Suite(name, self._file, tuple(expectations), frozenset(leave_out))

    def _expectation(self, item: Any, place: FieldPath, suite_meta: Mapping[str, Any]) -> Expectation | None:
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            self._report(place, "not an expectation", 'write {"type": "expect_...", "kwargs": {...}, "severity": ...}')
            return None
        before = len(self.problems)
        self._refuse_unknown(item, _FIELDS, place)
        kwargs = self._object(item, "kwargs", place)
        kind = item["type"]
        for name in sorted(_RUNTIME & kwargs.keys()):
            self._report((*place, "kwargs", name), "is decided by the gate", "leave it out")
        severity = self._one_of(item.get("severity", "critical"), Severity, (*place, "severity"))
        meta = self._object(item, "meta", place)
        self._refuse_unknown(meta, _META, (*place, "meta"), also_free=True)
        data = self._data
        if data is None:
            named = meta.get("data", suite_meta.get("data"))
            data = self._one_of(named, Data, (*place, "meta", "data"))
        elif meta.get("data", data) != data:
            self._report((*place, "meta", "data"), f"this file is about `{data}`", "move it to the pipeline's own file")
        when = meta.get("when", [])
        when = [when] if isinstance(when, str) else when
        for name in when if isinstance(when, list) else [when]:
            self._one_of(name, CONDITIONS, (*place, "meta", "when"))
        name = meta.get("name", "")
        if not isinstance(name, str):
            self._report((*place, "meta", "name"), "not a name", "write text")
        by = meta.get("by")
        if by is not None:
            by = self._one_of(by, By, (*place, "meta", "by"))
            if by is not None and data in NOT_BY_DAY:
                self._report((*place, "meta", "by"), f"the data `{data}` {NOT_BY_DAY[Data(data)]}", "leave `by` out")
        if len(self.problems) > before:
            return None
        return Expectation(
            data=Data(data),
            type=kind,
            kwargs=kwargs,
            severity=Severity(severity),
            description=str(item.get("description") or ""),
            name=name,
            when=tuple(when),
            place=place,
            by=None if by is None else By(by),
        )

    def _refuse_same_names(self, expectations: Iterable[Expectation]) -> None:
        seen: set[str] = set()
        for expectation in expectations:
            name = f"{expectation.data}/{expectation.name}"
            if expectation.name and name in seen:
                self._report((*expectation.place, "meta", "name"), f"`{name}` is there twice", "choose another name")
            seen.add(name)

    def _object(self, holder: Mapping[str, Any], name: str, place: FieldPath) -> dict[str, Any]:
        value = holder.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._report((*place, name), "not an object", "write {...}")
            return {}
        return value

    def _one_of(self, value: Any, known: Iterable[str], place: FieldPath) -> str | None:
        choices = [str(choice) for choice in known]
        if value in choices:
            return value
        what = "is missing" if value is None else f"{str(value)[:40]!r} is none of these"
        self._report(place, what, f"write one of {', '.join(choices)}")
        return None

    def _refuse_unknown(
        self, given: Mapping[str, Any], known: set[str], place: FieldPath, *, also_free: bool = False
    ) -> None:
        """`also_free`: unknown names are people's own notes, except those that look like a misspelt known name."""
        for name in given:
            near = nearest(name, known)
            if name in known or (also_free and near is None):
                continue
            hint = f"did you mean `{near}`?" if near else f"known are {', '.join(sorted(known))}"
            self._report((*place, name), "is not known here", hint)

    def _report(self, place: FieldPath, what: str, hint: str) -> None:
        self.problems.append(Problem(self._file, _lines_of(self._file).line(place), dotted(place), what, hint))


def _lines_of(file: str) -> SourceMap:
    """The lines of a file's fields, needed only where there is a problem; YAML's reader can read JSON."""
    try:
        return _lines_in(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError, DefinitionError):
        return SourceMap(file)


@lru_cache(maxsize=8)
def _lines_in(text: str, file: str) -> SourceMap:
    """The lines of a text's fields, read once for all of its problems."""
    return read_tree(text, file, {}).sources
