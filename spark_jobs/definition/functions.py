"""The live job's own functions, as a definition names them: files of the project, never run where DAGs are parsed."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from spark_jobs.definition.fields import Refusal, Refusals, Section, Text, shown
from spark_jobs.definition.names import RESERVED_PREFIX

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")


class LiveFunction(Section):
    """One function: a class of a jar, or a function or a class of a Python module. Both lie in the project's folder."""

    jar: Text | None = Field(
        None, description="The jar with the class, in the project's folder.", examples=["jobs/fares.jar"]
    )
    class_name: Text | None = Field(
        None,
        alias="class",
        description="The class in the jar: Flink's AggregateFunction, ReduceFunction or ScalarFunction, Spark's "
        "Aggregator or UDF, or Hive's UDF or UDAF.",
        examples=["com.example.MedianFare"],
    )
    python: Text | None = Field(
        None,
        description="The function or class, by its module in the project's folder. A class (`zero`, `add`, `result`) "
        "aggregates records.",
        examples=["jobs.agents.parse"],
    )
    returns: Text | None = Field(
        None,
        description="The type of the result, as Spark SQL writes it; of a class of a jar only where it does not say it "
        "itself.",
        examples=["STRING"],
    )
    aggregate: bool = Field(False, description="A Python function that gets all records of a window, a list of rows.")
    ordered: bool = Field(
        False, description="An aggregate whose value depends on the order of the records: no warning says so."
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.jar is None) == (self.python is None):
            raise Refusal("names no code, or twice", "write `jar` and `class`, or `python`")
        if self.jar is not None:
            _refuse_outside(self.jar)
            if self.class_name is None or not _CLASS.fullmatch(self.class_name):
                raise Refusal("does not name the class in the jar", "write it like `com.example.Fares`", ("class",))
            if self.aggregate:
                raise Refusal("belongs to Python: a class says itself what it is", "leave it out", ("aggregate",))
            return self
        if self.class_name is not None:
            raise Refusal("belongs to a jar", "write `python: module.Class`", ("class",))
        if self.python is None or not _PYTHON.fullmatch(self.python) or "." not in self.python:
            raise Refusal(
                f"{shown(self.python)} names no function of a module", "write `package.module.function`", ("python",)
            )
        if self.returns is None:
            raise Refusal("is missing: Python does not say a type", "write it like `returns: STRING`", ("returns",))
        return self

    @property
    def module(self) -> str:
        """The module of a Python function; empty for a jar."""
        return (self.python or "").rpartition(".")[0]

    def code(self, project: Path) -> str | None:
        """SHA-256 (hex) of the jar, or of the module with those of the project that it imports.

        None where the code is not on this machine: nothing can run, and a definition has a hash all the same.
        """
        if self.jar is not None:
            file = project / self.jar
            return digest_of(file) if file.is_file() else None
        texts = dict(_texts(project, self.module))
        content = b"".join(b"%s\0%s\0" % (name.encode(), texts[name]) for name in sorted(texts))
        return hashlib.sha256(content).hexdigest() if texts else None


def digest_of(file: Path) -> str:
    """SHA-256 (hex) of a file. One that has the size and time of before is not read again."""
    status = file.stat()
    return _digest(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _refuse_unnamed(functions: Mapping[str, LiveFunction]) -> Mapping[str, LiveFunction]:
    lowered = [name.lower() for name in functions]
    refusals = []
    for name in functions:
        if not _NAME.fullmatch(name) or name.lower().startswith(RESERVED_PREFIX):
            hint = f"write letters, digits and _; names with {RESERVED_PREFIX} are Rewindow's own"
            refusals.append(Refusal(f"{shown(name)} is no name of a function", hint, (name,)))
        elif lowered.count(name.lower()) > 1:
            refusals.append(Refusal(f"{shown(name)} is named twice: SQL's names have no case", "", (name,)))
    if refusals:
        raise Refusals(refusals)
    return functions


LiveFunctions = Annotated[dict[str, LiveFunction], AfterValidator(_refuse_unnamed)]
"""Functions by the names that expressions call them by."""


def module_file(project: Path, module: str) -> Path | None:
    """The file of a module in the project's folder; None where it has none there."""
    path = project.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _texts(project: Path, module: str) -> Iterator[tuple[str, bytes]]:
    """A module's text, and the texts of the project's modules that it imports, directly or not."""
    waiting, seen = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = module_file(project, name)
        if file is None:
            continue
        text = file.read_bytes().replace(b"\r\n", b"\n")
        yield name, text
        waiting += [name.rpartition(".")[0]] if "." in name else []
        waiting += _imported(text, name if file.name == "__init__.py" else name.rpartition(".")[0])


def _imported(text: bytes, package: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # no run can import it either
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _refuse_outside(jar: str) -> None:
    path = PurePosixPath(jar)
    if path.is_absolute() or ".." in path.parts or "://" in jar:
        raise Refusal(f"{shown(jar)} is no file of the project", "name it relative to the project's folder", ("jar",))
