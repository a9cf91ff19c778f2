"""Python functions of the live job: loaded from the project's folder, and shipped to Spark's workers by value."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import Row

from spark_jobs.definition.custom import imported
from spark_jobs.definition.fields import Refusal
from spark_jobs.definition.functions import LiveFunction, module_file
from spark_jobs.spark.failures import FUNCTION_FAILED

_METHODS = ("zero", "add", "result")


def load(function: LiveFunction, project: Path) -> Callable[..., Any] | type:
    """The function or the class, from the files as they are now.

    Raises Refusal: the module is not in the project's folder or cannot be imported, or has no such function.
    """
    module, name = function.module, (function.python or "").rpartition(".")[2]
    if module_file(project, module) is None:
        raise Refusal(
            f"the project has no module `{module}`", f"it is looked for as {module.replace('.', '/')}.py in {project}"
        )
    with _importing(project, module):
        found = getattr(imported(module, "correct it, or install what it needs"), name, None)
    if not callable(found):
        raise Refusal(f"module `{module}` has no function or class `{name}`", "name one of its functions")
    if isinstance(found, type) and (missing := [one for one in _METHODS if not callable(getattr(found, one, None))]):
        raise Refusal(f"class `{name}` has no method `{missing[0]}`", f"it needs {', '.join(_METHODS)}")
    return found


@contextmanager
def _importing(project: Path, module: str) -> Iterator[None]:
    """Import from the project's folder alone, and leave nothing behind.

    Each load reads the files as they are now. A function whose module cannot be imported by name is pickled by value,
    with what it uses of its own and other modules of the project: so it reaches workers that have no such files.
    """
    first = module.partition(".")[0]
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == first}
    before = set(sys.modules)
    sys.path.insert(0, str(project))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(project))
        for name in set(sys.modules) - before:
            spec = sys.modules[name].__spec__
            file = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
            if file is not None and Path(file).resolve().is_relative_to(project.resolve()):
                del sys.modules[name]
        sys.modules.update(hidden)


def row_function(function: Callable[..., Any]) -> Callable[..., tuple[Any, str | None]]:
    """The function as Spark calls it for each record: its value, or why it failed."""

    def call(*values: Any) -> tuple[Any, str | None]:
        try:
            return function(*values), None
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"

    return call


def fold(name: str, function: Callable[..., Any] | type) -> Callable[[Sequence[Row]], Any]:
    """The aggregate as Spark calls it for all records of a window, in the log's order.

    Each is a row of `rw_at` (its position), `rw_key`, `rw_time` and `rw_in` (the arguments).
    """

    def place(record: Row) -> tuple[Any, ...]:
        return (*((value is not None, value or 0) for value in record["rw_at"]), str(record["rw_in"]))

    def folded(records: Sequence[Row]) -> Any:
        if not records:
            return None
        in_order, current = sorted(records, key=place), None
        try:
            if not isinstance(function, type):
                return function([one["rw_in"] for one in in_order])
            aggregate: Any = function()
            state = aggregate.zero()
            for one in in_order:
                current = one["rw_in"]
                state = aggregate.add(state, *current)
            current = None
            return aggregate.result(state)
        except Exception as error:
            times = [one["rw_time"] for one in in_order if one["rw_time"] is not None]
            span = f"{min(times, default=None)} to {max(times, default=None)} ms"
            key = "" if in_order[0]["rw_key"] is None else f" for the key {in_order[0]['rw_key'].asDict()}"
            what = "its result" if current is None else f"the record {current.asDict()}"
            raise RuntimeError(
                f"{FUNCTION_FAILED} function `{name}` failed{key} in the window of the records from {span} on {what}: "
                f"{type(error).__name__}: {error}"
            ) from error

    return folded
