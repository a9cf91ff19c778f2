"""The command `rewindow init`: from a folder of files, a table or a topic to a definition that can be run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from spark_jobs.cli.app import app
from spark_jobs.cli.options import console
from spark_jobs.errors import DefinitionError

if TYPE_CHECKING:
    from spark_jobs.project.answers import Address, Answers
    from spark_jobs.project.questions import Ask, Check
    from spark_jobs.project.sample import Sample

_SHOWN = 40
"""Letters of an example value."""


@app.command()
def init(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="A path or glob, hive:DATABASE.TABLE, or kafka://HOST:PORT/TOPIC."),
    ] = None,
    directory: Annotated[Path, typer.Option(help="The project's folder; it is made where it is missing.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the pipeline. Default: from the source.")] = None,
    time: Annotated[str | None, typer.Option(help="Field of the event time, or a SQL expression.")] = None,
    unit: Annotated[str | None, typer.Option(help="What the event time is: timestamp, s, ms, us or iso.")] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", help="A field, or name=expression; once for each key. none: no key.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Field of the log's partition, or none.")] = None,
    offset: Annotated[str | None, typer.Option(help="Field of the offset, or none.")] = None,
    arrival: Annotated[str | None, typer.Option(help="Field of the broker's append time, or none.")] = None,
    arrival_kind: Annotated[str | None, typer.Option(help="Whose clock: append_time or producer_time.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="What the live job runs on: flink, spark or kafka_streams.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Engine flink: datastream, or sql for a query of Flink SQL.")] = None,
    lag: Annotated[str | None, typer.Option(help="Flink SQL: the delay of WATERMARK FOR, as '5 s'.")] = None,
    generator: Annotated[
        str | None, typer.Option(help="Watermark: bounded_out_of_orderness, ascending or none.")
    ] = None,
    bound: Annotated[str | None, typer.Option(help="Out-of-orderness bound of the live job, as '30 min'.")] = None,
    delay: Annotated[str | None, typer.Option(help="Engine spark: the delay of withWatermark.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Engine spark: the query's checkpoint, or none.")] = None,
    trigger: Annotated[
        str | None, typer.Option(help="Engine spark, without a checkpoint: the trigger's interval.")
    ] = None,
    grace: Annotated[str | None, typer.Option(help="Engine kafka_streams: the grace period.")] = None,
    window: Annotated[
        str | None, typer.Option(help="tumbling, sliding, cumulative or session; Kafka Streams: also hopping.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Length of a window, as '1 h'.")] = None,
    slide: Annotated[str | None, typer.Option(help="From one sliding window's start to the next.")] = None,
    advance: Annotated[
        str | None, typer.Option(help="From one hopping window's start to the next (Kafka Streams).")
    ] = None,
    time_difference: Annotated[
        str | None, typer.Option(help="Between the first and last record of a sliding window of Kafka Streams.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="By how much cumulative windows grow.")] = None,
    gap: Annotated[str | None, typer.Option(help="Quiet time that ends a session.")] = None,
    lateness: Annotated[str | None, typer.Option(help="Allowed lateness of the live job.")] = None,
    aggregates: Annotated[
        list[str] | None, typer.Option("--aggregate", help="name=aggregate in Spark SQL; once for each result column.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace of the tables. Default: default.")] = None,
    metastore: Annotated[str | None, typer.Option(help="Address of the Hive metastore: thrift://host:9083.")] = None,
    registry: Annotated[
        str | None, typer.Option(help="Address of the schema registry of a topic: https://host:8081.")
    ] = None,
    registry_auth: Annotated[
        str | None, typer.Option(help="The environment variable with the registry's user:password.")
    ] = None,
    records: Annotated[int, typer.Option(min=2, help="So many records are read, at most.")] = 1000,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the flags, else the proposals.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a definition of this name.")] = False,
) -> None:
    """Begin a project: read a few records, propose a definition, and write it with suites and DAG files.

    Asks for what the flags do not say. Files are read without Spark; Avro files, a table or a topic need it. Files
    that are there already stay as they are.
    """
    from spark_jobs.definition import load_pipeline
    from spark_jobs.project.answers import FORMS, parse_address
    from spark_jobs.project.changes import of_rows
    from spark_jobs.project.questions import settle
    from spark_jobs.project.writing import project_files, write_files

    ask: Ask = _take_defaults if yes else _prompt
    text = source or ask("Source", f"Where the history lies: {FORMS}.", "SOURCE", None, lambda text: text)
    address = parse_address(text)
    sample = of_rows(_read(address, records, metastore, registry, registry_auth))
    _show(sample)
    answers = settle(address, sample, context.params, ask, metastore)
    files = project_files(answers, directory)
    load_pipeline(directory / files[0].path, text=files[0].text)  # a wrong answer is refused before anything is written
    written, kept = write_files(files, directory, force=force)
    _show_result(answers, directory, written, kept)


def _read(
    address: Address, records: int, metastore: str | None, registry: str | None, registry_auth: str | None
) -> Sample:
    from spark_jobs.project.answers import SourceKind

    container = None
    if address.kind is SourceKind.FILES:
        from spark_jobs.project.reading import avro_files, read_files

        container = avro_files(address.place)
        if container is None:
            return read_files(address.place, records)
    from spark_jobs.project.services import read_avro, read_hive, read_kafka
    from spark_jobs.spark.session import spark_session

    spark = spark_session("rewindow init", metastore=metastore)
    if container is not None:
        return read_avro(spark, container, records)
    if address.kind is SourceKind.HIVE:
        return read_hive(spark, address.place, metastore, records)
    named = None
    if registry is not None:
        named = {"url": registry} | ({"auth": {"basic": registry_auth}} if registry_auth else {})
    return read_kafka(spark, address.servers, address.place, records, named)


def _take_defaults(question: str, why: str, flag: str, default: str | None, check: Check) -> str:
    """The answer of `--yes`: the proposal. Raises DefinitionError where there is none."""
    if default is None:
        raise DefinitionError(f"{question}: there is nothing to propose", hint=f"Name it with {flag}. {why}")
    return check(default)


def _prompt(question: str, why: str, flag: str, default: str | None, check: Check) -> str:
    """Ask until the answer can be used."""
    console.print(f"\n[dim]{escape(why)}[/]")
    while True:
        answer = typer.prompt(f"{question} ({flag})" if flag.startswith("--") else question, default=default)
        try:
            return check(str(answer).strip())
        except DefinitionError as error:
            console.print(f"[red]{escape(error.what)}[/]. {escape(error.hint)}")


def _show(sample: Sample) -> None:
    console.print(escape(sample.source))
    if sample.unreadable:
        console.print(
            f"[yellow]note[/]: {sample.unreadable} of them cannot be decoded; in a run such records go to quarantine"
        )
    table = Table("field", "type", "example", "without a value", title_justify="left")
    for field in sample.fields:
        example = str(field.values[0]) if field.values else ""
        example = example if len(example) <= _SHOWN else example[:_SHOWN] + "..."
        nulls = f"{field.nulls:,}" if field.nulls else ""
        table.add_row(escape(".".join(field.path)), field.kind, escape(example), nulls)
    console.print(table, soft_wrap=False)


def _show_result(answers: Answers, directory: Path, written: list[Path], kept: list[Path]) -> None:
    from spark_jobs.definition.loading import unchecked
    from spark_jobs.project.writing import disorder_line

    fidelity = answers.fidelity
    console.print(f"\nfidelity [bold]{fidelity.level}[/]: {escape(fidelity.meaning)}")
    if fidelity.advice:
        console.print(escape(fidelity.advice))
    console.print(disorder_line(answers))
    for path in written:
        console.print(f"[green]written[/] {escape(str(path))}")
    for path in kept:
        console.print(f"[dim]is there  {escape(str(path))}[/]")
    place = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    guesses = (
        f"Read the lines with CHECK in {escape(str(written[0]))}. Then:" if unchecked(written[0].read_text()) else ""
    )
    console.print(
        f"\n{guesses or 'Then:'}\n"
        f"  {escape(place)}rewindow check {answers.name}\n"
        f"  {escape(place)}rewindow run {answers.name}"
    )
