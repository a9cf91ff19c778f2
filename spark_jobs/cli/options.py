"""What the commands share: the options, their reading, the two consoles and the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from spark_jobs.errors import DefinitionError, NotApprovedError
from spark_jobs.formatting import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.definition import Pipeline
    from spark_jobs.runs.life.documents import Requested
    from spark_jobs.runs.life.start import Asked
    from spark_jobs.runs.work.evaluation import EndPolicy


class PlainConsole(Console):
    """A console that shows what data hold and carries none of it out: rows, keys and messages may hold escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The parts of what is printed: styles are beside their text, so a control character comes from data."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)


console = PlainConsole(highlight=False, soft_wrap=True)
errors = PlainConsole(stderr=True, highlight=False, soft_wrap=True)


def known_pipelines() -> list[str]:
    """The names of the project's definitions, for completion and for messages."""
    from spark_jobs.settings import PIPELINES, project_folder

    return sorted(file.stem for file in (project_folder() / PIPELINES).glob("*.y*ml"))


def known_runs() -> list[str]:
    """The ids of the last runs, for completion and for messages."""
    from itertools import islice

    from spark_jobs.runs.life.store import RunStore

    return list(islice(RunStore.configured().run_ids(), 200))


def starting(known: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Completion of an argument whose values are known."""
    return lambda incomplete: [name for name in known() if name.startswith(incomplete)]


GATE_CLOSED = NotApprovedError.exit_code
"""Exit code of a command that finds what keeps a run from being published."""

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A YAML file, or the name of one in dags/pipelines.",
        autocompletion=starting(known_pipelines),
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", "--start", help="First window start, inclusive, with a zone: 2013-02-01T00:00:00Z. Default: all."
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", "--end", help="Windows start before this instant (exclusive), with a zone.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        help="Cut the history here: end offsets (exclusive) by partition, as 0=120,1=95, or what the live job wrote "
        "down (see `rewindow marks`): a checkpoint's folder, a consumer group. Default: all."
    ),
]
ModeOption = Annotated[
    str | None, typer.Option(help="faithful, complete or both (one aggregation); default as the definition says.")
]
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
BeyondLimitsOption = Annotated[
    bool, typer.Option("--beyond-limits", help="Allow this run to cost more than the definition's `limits`.")
]
AnotherLogOption = Annotated[
    bool,
    typer.Option(
        "--another-log",
        help="Accept a history that is another log than the one read before (a topic that was made anew, other files): "
        "what it gives replaces all that is published. Without this option such a run is refused.",
    ),
]
GateOption = Annotated[
    bool, typer.Option(help="Check what is staged against the suites in expectations/ before it is published.")
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run id, as `run` and `reconcile` print it.", autocompletion=starting(known_runs)
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def find_pipeline(name: str) -> Path:
    """The YAML file that a person means: a path, or a name in the project's dags/pipelines."""
    from spark_jobs.definition.fields import nearest
    from spark_jobs.settings import PIPELINES, project_folder

    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    folder = project_folder() / PIPELINES
    if folder == Path.cwd() / PIPELINES:
        folder = PIPELINES  # messages then name files as people see them
    for suffix in (".yaml", ".yml"):
        candidate = folder / f"{name}{suffix}"
        if candidate.exists():
            return candidate
    known = known_pipelines()
    near = nearest(name, known)
    meant = f"Did you mean {near}? " if near else ""
    hint = f"{meant}Known here: {', '.join(known)}." if known else "Give the path of a YAML file."
    raise DefinitionError(f"there is no pipeline {name!r}", str(folder), hint)


def load(name: str) -> Pipeline:
    from spark_jobs.definition import load_pipeline

    return load_pipeline(find_pipeline(name))


def say_home() -> None:
    """Print which home is used, before the first thing that depends on it."""
    from spark_jobs.settings import settings

    used = settings()
    errors.print(Text(f"home {used.home}, from {used.home_origin}", style="dim"))


def session(pipeline: Pipeline | None, app_name: str, *, short: bool = False, has_gate: bool = False) -> SparkSession:
    """Start Spark, and say which home is used.

    `short`: the command reads little, whatever the history holds. `has_gate`: it also needs Great Expectations.
    """
    from spark_jobs.cli.interrupt import end_on_interrupt
    from spark_jobs.definition.size import is_small
    from spark_jobs.quality.gx import import_ahead
    from spark_jobs.spark.session import spark_session

    say_home()
    end_on_interrupt()
    metastore = pipeline.history.metastore if pipeline is not None else None
    short = short or (pipeline is not None and is_small(pipeline))
    if has_gate:
        import_ahead()
    started = spark_session(f"rewindow {app_name}", metastore=metastore, short=short, warm=True)
    end_on_interrupt()
    return started


def requested_of(pipeline: Pipeline, **given: object) -> Requested:
    """What this command line requested of a pipeline. Instants are texts: `start` is that of --from, `end` of --to.

    Raises DefinitionError for a text that cannot be read, and for a policy that is weaker than the definition's.
    """
    from spark_jobs.marks.read import ends_of_mark
    from spark_jobs.runs.life.permission import effective_policy
    from spark_jobs.runs.planning import requesting

    aliases = {"start": "from", "end": "to"}
    requested = requesting.requested_of({aliases.get(name, name): value for name, value in given.items()})
    effective_policy(pipeline.publish, requested.publish)
    return requested.with_ends(lambda mark: ends_of_mark(lambda: session(pipeline, "marks"), pipeline, mark))


def asked_for(reason: str, requested: Requested) -> Asked:
    """Why the run is started, and by whom: the user of this process."""
    import getpass

    from spark_jobs.runs.life.start import Asked

    return Asked(reason, requested, getpass.getuser())


def end_policy_of(pipeline: Pipeline, requested: Requested, gate: bool) -> EndPolicy:
    """How a run ends: by policy, with the gate and the facts for its report, or as a dry run."""
    from spark_jobs.operations import run_ends

    ends = run_ends.end_policy_of(pipeline, requested, gate=gate)
    if ends.unchecked == run_ends.NO_FOLDER:
        errors.print("[yellow]note[/]: there is no folder `expectations`: nothing is checked before it is published")
    return ends
