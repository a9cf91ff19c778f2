"""What the commands share: the options, their reading, the two consoles and the session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from spark_jobs.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.definition import Pipeline
    from spark_jobs.replay.spec import Mode
    from spark_jobs.runs.backfill import EndPolicy

console = Console()
errors = Console(stderr=True)

PIPELINES = Path("dags/pipelines")

PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A YAML file, or the name of one in dags/pipelines.")
]
FromOption = Annotated[
    str | None, typer.Option("--from", help="First window start, with a zone: 2013-02-01T00:00:00Z. Default: all.")
]
ToOption = Annotated[str | None, typer.Option("--to", help="Windows start before this instant, with a zone.")]
AsOfOption = Annotated[
    str | None,
    typer.Option(help="Cut the history here: end offsets (exclusive) by partition, as 0=120,1=95. Default: all."),
]
ModeOption = Annotated[str, typer.Option(help="faithful, complete or both (one aggregation).")]
ChunksOption = Annotated[
    int | None, typer.Option(min=1, help="Slices of the range to work through. Never changes a result.")
]
DryRunOption = Annotated[
    str | None,
    typer.Option("--dry-run", metavar="[plan|diff]", help="plan: say what a run would do. diff: what it would change."),
]
ReasonOption = Annotated[str, typer.Option(help="Why; kept with the run.")]
RunIdOption = Annotated[
    str | None, typer.Option(help="A name for the run, letters, digits, - and _. Published once, it changes nothing.")
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--publish",
        metavar="POLICY",
        help="always, within_tolerance, on_approval or never; default: the definition's. A weaker one than that is "
        "refused, unless the definition says may_override. What is not published stays staged: exit code 3.",
    ),
]
GateOption = Annotated[
    bool, typer.Option(help="Check what is staged against the suites in expectations/ before it is published.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run id, as `run` and `reconcile` print it.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def find_pipeline(name: str) -> Path:
    """The YAML file that a person means: a path, or a name in dags/pipelines."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    for suffix in (".yaml", ".yml"):
        candidate = PIPELINES / f"{name}{suffix}"
        if candidate.exists():
            return candidate
    known = sorted(p.stem for p in PIPELINES.glob("*.y*ml")) if PIPELINES.is_dir() else []
    hint = f"Known here: {', '.join(known)}." if known else "Give the path of a YAML file."
    raise DefinitionError(f"there is no pipeline {name!r}", str(PIPELINES), hint)


def load(name: str) -> Pipeline:
    from spark_jobs.definition import load_pipeline

    return load_pipeline(find_pipeline(name))


def instant(text: str | None, option: str) -> int | None:
    from spark_jobs.definition.instants import InstantError, parse_instant

    if text is None:
        return None
    try:
        return parse_instant(text)
    except InstantError as problem:
        raise DefinitionError(f"{option}: {problem.what}", hint=problem.hint) from None


def as_of_vector(text: str | None) -> dict[int, int] | None:
    from spark_jobs.definition.position import end_offsets

    if text is None:
        return None
    try:
        return end_offsets(text)
    except ValueError:
        raise DefinitionError(
            f"--as-of: {text!r} is not a list of end offsets", hint="Write partition=offset pairs: 0=120,1=95."
        ) from None


def mode_of(text: str) -> Mode:
    from spark_jobs.replay.spec import Mode

    try:
        return Mode(text)
    except ValueError:
        raise DefinitionError(f"--mode: {text!r}", hint="Use faithful, complete or both.") from None


def session(pipeline: Pipeline | None, app_name: str) -> SparkSession:
    from spark_jobs.spark.session import spark_session

    metastore = pipeline.history.metastore if pipeline is not None else None
    return spark_session(f"rewindow {app_name}", metastore=metastore)


def dry_run_of(text: str | None) -> str | None:
    """plan, diff, or None for a real run."""
    if text not in (None, "plan", "diff"):
        raise DefinitionError(f"--dry-run: {text!r}", hint="Write --dry-run (or --dry-run=plan), or --dry-run=diff.")
    return text


def end_policy_of(pipeline: Pipeline, policy: str | None, dry_run: str | None, gate: bool) -> EndPolicy:
    """How a run ends: by policy, with the gate and the facts for its report, or as a dry run."""
    from spark_jobs.definition.policy import Policy
    from spark_jobs.quality.configured import gate_of
    from spark_jobs.report.collect import collect
    from spark_jobs.runs.backfill import EndPolicy
    from spark_jobs.runs.status import RunStatus

    if policy is not None and policy not in list(Policy):
        raise DefinitionError(f"--publish: {policy!r}", hint=f"Use {', '.join(Policy)}.")
    checks = gate_of(pipeline, thorough=True) if gate and dry_run != "plan" else None
    if gate and checks is None and dry_run != "plan":
        errors.print("[yellow]note[/]: there is no folder `expectations`: nothing is checked before it is published")
    return EndPolicy(
        policy=Policy(policy) if policy else None,
        ends_as=RunStatus.DRY_RUN if dry_run else None,
        gate=checks,
        collector=collect,
    )
