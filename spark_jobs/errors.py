"""The one family of errors that Rewindow shows to people.

Each says what happened, where (file, pipeline, table, partition, offset) and what to do about it; the exit code of the
command is the error's `exit_code`. 0 is success, 1 anything unexpected, 3 a run that is not
published because its gate is closed or an approval is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar


class RewindowError(Exception):
    """Something the reader can act on: `what` happened, `where`, and the `hint`.

    `where` and `hint` may be empty. As text: "what (where). hint".
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        what, where, hint = (_printable(text) for text in (what, where, hint))
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        hint = f". {self.hint}" if self.hint else ""
        return f"{self.what}{place}{hint}"


def _printable(text: str) -> str:
    """The text without half characters, which a request can bring in and no terminal or file can take."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a definition: the file and line, the field's dotted path ("" = the whole file), what to write.

    `line` counts from 1.
    """

    file: str
    line: int
    field: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.file}:{self.line}: {field}{self.what}{hint}"


class DefinitionError(RewindowError):
    """A pipeline definition or a command line that cannot be carried out as written.

    `problems` holds every problem of a definition; it is empty where the error is about a command line.
    """

    exit_code = 2
    problems: tuple[Problem, ...] = ()

    @classmethod
    def listing(cls, problems: Iterable[Problem]) -> DefinitionError:
        """One error for all problems, one line each, in the order of the files and their lines."""
        ordered = tuple(sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line)))
        error = cls("\n".join(str(problem) for problem in ordered))
        error.problems = ordered
        return error


class SourceError(RewindowError):
    """The history cannot be read: a table, column or file is missing, truncated, mixed or unreachable."""

    exit_code = 4


class HistoryError(RewindowError):
    """The history can be read but breaks a rule.

    Duplicated offsets, offsets or arrivals that go back, a missing event time under `fail`, more records in quarantine
    than the threshold allows.
    """

    exit_code = 5


class EmptyRangeError(RewindowError):
    """The requested range is well formed, and the history holds nothing in it."""

    exit_code = 6


class CatalogError(RewindowError):
    """The lakehouse refused: the catalog is unreachable, the disk is full, a write failed."""

    exit_code = 7


class EnvironmentSetupError(RewindowError):
    """The machine lacks something: Java, a jar, a Python package."""

    exit_code = 8


class DocumentError(RewindowError):
    """A document of a run's folder is damaged."""

    exit_code = 4


class NotApprovedError(RewindowError):
    """A run may not be published yet: its gate is closed, or the approval that its policy requires is missing."""

    exit_code = 3


class RunStateError(RewindowError):
    """The run's state does not allow it: it has ended, a process works on it, or its staged rows are incomplete."""

    exit_code = 9


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Note on an unexpected error of the block where it came up. Rewindow's own errors say it themselves."""
    try:
        yield
    except RewindowError:
        raise
    except Exception as problem:
        problem.add_note(where)
        raise


def first_line(problem: BaseException) -> str:
    """The first line of an error's text; the name of its class where it has no text."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)
