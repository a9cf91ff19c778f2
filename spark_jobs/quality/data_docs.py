"""A run's gate as Great Expectations' own validation results, in the Data Docs of a GX project.

The gate runs in a context in memory. People who keep a GX project look for results there: in its store of validation
results, in its Data Docs, and where the actions of its checkpoints send them (Slack, mail).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.errors import DefinitionError, first_line
from spark_jobs.formatting import plural
from spark_jobs.parts import Part, require
from spark_jobs.quality.columns import RW_DAY
from spark_jobs.quality.gx import quiet

if TYPE_CHECKING:
    from great_expectations.checkpoint.checkpoint import Checkpoint
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context import FileDataContext
    from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

    Results = dict[ValidationResultIdentifier, ExpectationSuiteValidationResult]

_BEGIN_OF_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_LOOKS_LIKE_IT = "\N{FULLWIDTH LESS-THAN SIGN}"


def build_data_docs(
    gate: Mapping[str, Any], run_id: str, at: datetime, project: Path, checkpoint: str | None = None
) -> dict[str, str]:
    """Put a run's results into a GX project and build the pages of its sites about them; the sites' addresses by name.

    A project that is not there is made. Results that are there already are replaced.

    Args:
        gate: The document `gate.json`.
        at: When the run was requested, with a zone: GX orders its runs by it.
        project: The folder of the project (`gx/` lies in it).
        checkpoint: A checkpoint of the project whose actions are carried out for these results.

    Raises:
        DefinitionError: The project cannot be read, it has no such checkpoint, or an action failed.
        EnvironmentSetupError: Great Expectations is not installed.
    """
    require(Part.GATE, "Data Docs")
    with quiet():
        context = _context(project)
        chosen = _checkpoint(context, checkpoint, project) if checkpoint else None
        results = dict(_results(gate, run_id, at))
        for identifier, result in results.items():
            context.validation_results_store.set(identifier, result)
        sites = context.build_data_docs(resource_identifiers=list(results))
        if chosen is not None:
            _act(chosen, results)
    return dict(sites)


def _context(project: Path) -> FileDataContext:
    import great_expectations as gx

    import spark_jobs.quality.unique  # noqa: F401 - registers our expectation

    try:
        context = gx.get_context(mode="file", project_root_dir=str(project))
    except Exception as problem:  # of GX's own kinds, and of the YAML that it reads
        hint = "Name the folder in which gx/great_expectations.yml lies."
        raise DefinitionError(f"not a GX project: {first_line(problem)[:200]}", str(project), hint) from problem
    context.enable_analytics(False)
    return context


def _checkpoint(context: FileDataContext, name: str, project: Path) -> Checkpoint:
    from great_expectations.exceptions import DataContextError

    try:
        return context.checkpoints.get(name)
    except DataContextError as problem:
        known = ", ".join(sorted(one.name for one in context.checkpoints.all())) or "none"
        raise DefinitionError(f"there is no checkpoint {name!r}", str(project), f"Known here: {known}.") from problem


def _act(checkpoint: Checkpoint, results: Results) -> None:
    """Carry out the checkpoint's actions as GX does after a run of its own; those for Data Docs are done already.

    The actions use the context that was opened last, which is that of the checkpoint.
    """
    from great_expectations.checkpoint.actions import ActionContext, UpdateDataDocsAction
    from great_expectations.checkpoint.checkpoint import CheckpointResult

    run = next(iter(results)).run_id
    outcome = CheckpointResult(run_id=run, run_results=results, checkpoint_config=checkpoint)
    done = ActionContext()
    for action in checkpoint.actions:
        if isinstance(action, UpdateDataDocsAction):
            continue
        try:
            done.update(action=action, action_result=action.run(checkpoint_result=outcome, action_context=done))
        except Exception as problem:
            where = f"checkpoint {checkpoint.name}, action {action.name}"
            raise DefinitionError(f"an action failed: {first_line(problem)[:200]}", where) from problem


def _results(
    gate: Mapping[str, Any], run_id: str, at: datetime
) -> Iterator[tuple[ValidationResultIdentifier, ExpectationSuiteValidationResult]]:
    """One result of GX for each suite and each data that it is about."""
    from great_expectations import __version__
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    run = RunIdentifier(run_name=run_id, run_time=at)

    def place(one: Mapping[str, Any]) -> tuple[str, str]:
        return one["suite"], one["data"]

    for (suite, data), found in groupby(sorted(gate["results"], key=place), key=place):
        results = [_result(part) for one in found for part in _parts(one)]
        met = sum(bool(one.success) for one in results)
        suite, data = _without_markup(suite), _without_markup(data)
        name = suite if suite == data else f"{suite}_{data}"
        yield (
            ValidationResultIdentifier(ExpectationSuiteIdentifier(name), run, data),
            ExpectationSuiteValidationResult(
                success=met == len(results),
                results=results,
                suite_name=name,
                suite_parameters={},
                statistics={
                    "evaluated_expectations": len(results),
                    "successful_expectations": met,
                    "unsuccessful_expectations": len(results) - met,
                    "success_percent": 100 * met / len(results),
                },
                meta={
                    "great_expectations_version": __version__,
                    "run_id": run.to_json_dict(),
                    "active_batch_definition": {"datasource_name": "rewindow", "data_asset_name": data},
                    "validation_time": at.isoformat(),
                },
            ),
        )


def _parts(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One result; of an expectation by day, one for each day that failed and is named, and one for all others.

    A day is named as GX names a part of the rows: by a row condition.
    """
    failed = one.get("failed_days") or ()
    own = one["threshold"].get("row_condition")
    for day in failed:
        condition = f"{RW_DAY} = DATE'{day['day']}'" + (f" AND ({own})" if own else "")
        where = {"row_condition": condition, "condition_parser": "spark"}
        samples = [row for row in one["samples"] if row.get(RW_DAY) == day["day"]]
        said = f"{one['description']}: {day['day']}"
        yield {**one, **day, "threshold": {**one["threshold"], **where}, "samples": samples, "description": said}
    others = (one.get("days") or 0) - one.get("days_failed", 0)
    if not failed or one["days_failed"] > len(failed):
        yield dict(one)
    elif others:
        said = f"{one['description']}: {plural(others, 'other day')}"
        yield {**one, "success": True, "observed": None, "unexpected_count": None, "samples": [], "description": said}


def _result(one: Mapping[str, Any]) -> ExpectationValidationResult:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    columns = one.get("columns") or ({"column": one["column"]} if one["column"] else {})
    checked, unexpected = one["checked"], one["unexpected_count"]
    error = html.escape(one["error"] or "", quote=False)
    about_rows = {
        "element_count": checked,
        "unexpected_count": unexpected,
        "unexpected_percent": one["unexpected_percent"],
        "partial_unexpected_list": [],
        "partial_unexpected_index_list": one["samples"],
    }
    return ExpectationValidationResult(
        success=bool(one["success"]),
        expectation_config=ExpectationConfiguration(
            type=one["expectation"],
            kwargs=_in_texts(_without_markup, {**columns, **one["threshold"]}),
            description=html.escape(one["description"] or "", quote=False) or None,
            severity=FailureSeverity(one["severity"]),
            meta={"name": one["name"]} if one["name"] else None,
        ),
        result={"observed_value": _in_texts(partial(html.escape, quote=False), one["observed"])}
        | (about_rows if unexpected is not None else {}),
        exception_info={
            "raised_exception": one["error"] is not None,
            "exception_message": error,
            "exception_traceback": error,
        },
    )


def _without_markup(text: str) -> str:
    """The text of a kwarg or a name, which no browser takes for markup: `<` before a letter has its full width.

    GX escapes such a text in some places of a page and not in others, so an escaped one would be escaped twice.
    """
    return _BEGIN_OF_MARKUP.sub(_LOOKS_LIKE_IT, text)


def _in_texts(change: Callable[[str], str], value: Any) -> Any:
    """The value with each text in it changed, names of fields too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(name)): _in_texts(change, part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_in_texts(change, part) for part in value]
    return value
