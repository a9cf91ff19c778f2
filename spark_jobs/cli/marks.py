"""`rewindow marks`: how far a live job had read, by what it wrote down itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, console, known_pipelines, load, session, starting
from spark_jobs.formatting import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    as_json: JsonOption = False,
) -> None:
    """Show how far a live job had read: the next offset of each partition, by its own checkpoint or committed offsets.

    `--as-of` of `run` and `plan` takes the same PATH or GROUP, and cuts the history there.
    """
    from spark_jobs.marks.read import read_mark, topic_of

    loaded = load(pipeline) if pipeline else None

    def started() -> SparkSession:
        return session(loaded, "marks", short=True)

    found = read_mark(started, where, lambda: None if loaded is None else topic_of(started(), loaded))
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
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
    for note in found.notes:
        console.print(Text(f"note: {note}"))
