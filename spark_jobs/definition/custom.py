"""A user's own watermark generator, named `module:Class`, and the checks that it can run."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spark_jobs.definition.fields import Refusal, nearest, shown
from spark_jobs.errors import DefinitionError

if TYPE_CHECKING:
    from spark_jobs.definition.pipeline import Pipeline

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_METHODS = {"on_event": ("timestamp", "arrival", "output"), "on_periodic_emit": ("now", "output")}


def refuse_no_class(reference: str) -> None:
    """Raise Refusal for what is not spelled `module:Class`. Nothing is imported: Airflow's DAG processor reads, too."""
    if not _REFERENCE.fullmatch(reference):
        raise Refusal(f"{shown(reference)} does not name a class", "write `module:Class`")


def check_class(pipeline: Pipeline) -> None:
    """Import the custom generator that a definition names, where a run or a check needs it.

    Raises DefinitionError, with file and line, where it cannot run. No generator of the user's own: nothing happens.
    """
    watermark = pipeline.watermark
    if watermark.custom_class is None:
        return
    field = "class"
    try:
        found = load_class(watermark.custom_class)
        field = "parameters"
        refuse_unknown_parameters(found, watermark.parameters)
    except Refusal as refusal:
        problem = pipeline.problem(("watermark", field), refusal.what, refusal.hint)
        raise DefinitionError.listing([problem]) from refusal


def load_class(reference: str) -> type:
    """Import the class `module:Class`.

    Raises Refusal for another spelling, a module that cannot be imported, a name that is no class, and a class without
    `on_event(self, timestamp, arrival, output)` and `on_periodic_emit(self, now, output)`.
    """
    refuse_no_class(reference)
    module_name, _, class_name = reference.partition(":")
    module = imported(module_name, "install it beside Rewindow or put its folder on PYTHONPATH")
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        classes = [name for name, _ in inspect.getmembers(module, inspect.isclass)]
        near = nearest(class_name, classes)
        hint = f"write `{module_name}:{near}`" if near else "name a class of that module"
        raise Refusal(f"module `{module_name}` has no class `{class_name}`", hint)
    for method, arguments in _METHODS.items():
        _refuse_unless_callable_with(found, method, arguments)
    return found


def imported(module: str, hint: str) -> ModuleType:
    """Import a user's module. Raises Refusal, with this hint, where that fails in any way."""
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module can raise anything, SystemExit too
        raise Refusal(f"module `{module}` cannot be imported: {type(error).__name__}: {error}", hint) from error


def refuse_unknown_parameters(generator: type, parameters: Mapping[str, Any]) -> None:
    """Raise Refusal for parameters that the constructor of `generator` does not take."""
    try:
        inspect.signature(generator).bind(**parameters)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(generator).parameters) or "no parameters"
        raise Refusal(f"`{generator.__name__}` cannot be made with them: {error}", f"it takes {accepted}") from None
    except ValueError:  # a class without a signature (written in C) is left to its own checks
        return


def _refuse_unless_callable_with(generator: type, method: str, arguments: tuple[str, ...]) -> None:
    hint = f"add `def {method}(self, {', '.join(arguments)})`"
    function = getattr(generator, method, None)
    if not callable(function):
        raise Refusal(f"class `{generator.__name__}` has no method `{method}`", hint)
    try:
        inspect.signature(function).bind("self", *arguments)
    except TypeError:
        what = f"method `{method}` of class `{generator.__name__}` does not take ({', '.join(arguments)})"
        raise Refusal(what, hint) from None
