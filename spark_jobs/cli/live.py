"""Commands about the live job: `rewindow live check`.

`rewindow marks`: how far a live job had read, by what it wrote down itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from spark_jobs.cli.app import app
from spark_jobs.cli.options import (
    JsonOption,
    PipelineArgument,
    console,
    errors,
    known_pipelines,
    load,
    session,
    starting,
)
from spark_jobs.errors import DefinitionError
from spark_jobs.formatting import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.comparison.live_check import LiveCheck

live_app = typer.Typer(help="What the live job emitted: whether the section `live:` fits it.", no_args_is_help=True)
app.add_typer(live_app, name="live")


@live_app.command("check")
def check(
    pipeline: PipelineArgument,
    rows: Annotated[int, typer.Option(min=10, max=100_000, help="How many emitted rows to look at.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Look at a sample of the live job's rows: do keys, windows, units, time zones and values of `live:` fit them?

    Where they do not, says what is likely meant and what to write. Reads the history once, and writes nothing.
    Exit code 3 if something does not fit.
    """
    from spark_jobs.comparison.emitted import refuse_without_live
    from spark_jobs.comparison.live_check import check_live
    from spark_jobs.definition.deployments import deployments_of
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    refuse_without_live(loaded)
    spark, progress = session(loaded, "live check"), progress_for(errors)
    checks = {one.name: check_live(spark, one, progress, rows=rows) for one in deployments_of(loaded)}
    fit = all(found.fits for found in checks.values())
    if as_json and None in checks:
        print(json.dumps(checks[None].to_dict(), indent=2))
    elif as_json:
        each = [{"deployment": name, **found.to_dict()} for name, found in checks.items()]
        print(json.dumps({"pipeline": loaded.name, "fits": fit, "deployments": each}, indent=2))
    else:
        for name, found in checks.items():
            _print(name, found)
        words = f"`live:` fits. Next: rewindow compare {loaded.name}" if fit else "Correct `live:`, and check again."
        console.print(Text(words))
    raise typer.Exit(0 if fit else 3)


def _print(deployment: str | None, found: LiveCheck) -> None:
    of = "" if deployment is None else f"{deployment}: "
    console.print(Text(f"{of}{found.rows:,} rows of {found.emitted}"))
    for finding in found.findings:
        mark = Text("fix  ", style="red") if finding.is_problem else Text("ok   ", style="green")
        console.print(mark + Text(f"{finding.subject}: {finding.what}"))
        if finding.hint:
            console.print(Text(f"     {finding.hint}", style="dim"))


@app.command()
def marks(
    where: Annotated[
        str,
        typer.Argument(
            metavar="PATH|GROUP",
            help="A Flink checkpoint or savepoint, a Structured Streaming checkpoint, or a consumer group.",
        ),
    ],
    pipeline: Annotated[
        str | None,
        typer.Option(help="Whose brokers know the consumer group.", autocompletion=starting(known_pipelines)),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Also say the restart of a job that went on from there, as the definition of --pipeline has it. "
            "Reads the history's positions.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how far a live job had read: the next offset of each partition, by its own checkpoint or committed offsets.

    `--as-of` of `run` and `plan` takes the same PATH or GROUP, and cuts the history there. A checkpoint or savepoint is
    a folder of this machine, or has an address of an object store or HDFS that Spark knows: `s3a://lake/savepoint-1`.
    """
    from spark_jobs.cutover.restart import restart_from
    from spark_jobs.marks.read import read_mark, topic_of

    loaded = load(pipeline) if pipeline else None

    def started() -> SparkSession:
        return session(loaded, "marks", short=True)

    if restart and loaded is None:
        raise DefinitionError("--restart needs the history that the job reads", hint="Add --pipeline.")
    found = read_mark(started, where, lambda: None if loaded is None else topic_of(started(), loaded))
    again = restart_from(started(), loaded, found) if restart and loaded is not None else None
    if as_json:
        print(json.dumps(found.to_dict() | ({} if again is None else {"restart": again.to_dict()}), indent=2))
        return
    number = "" if found.number is None else f" {found.number}"
    of_file = " (of its file)" if found.at_is_of_file else ""
    written = "" if found.at is None else f", written {moment(found.at)}{of_file}"
    console.print(Text(f"{found.kind}{number}{written}: {found.where}"))
    table = Table("topic", "partition", "next offset")
    for topic, offsets in sorted(found.offsets.items()):
        for partition, offset in sorted(offsets.items()):
            table.add_row(Text(topic), str(partition), str(offset))
    if found.offsets:
        console.print(table, soft_wrap=False)
    if again is not None:
        console.print(Text(f"restart: {again.definition}"))
    for note in (*found.notes, *filter(None, [again and again.note])):
        console.print(Text(f"note: {note}"))
