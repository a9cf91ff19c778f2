"""Commands that bring what people have: `rewindow import flink-sql`, `import spark` and `import expectations`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import PipelineArgument, console, load
from spark_jobs.errors import DefinitionError
from spark_jobs.settings import PIPELINES

import_app = typer.Typer(
    help="Bring what you have: a definition from a Flink SQL script or a checkpoint, expectations.",
    no_args_is_help=True,
)
app.add_typer(import_app, name="import")


@import_app.command("flink-sql")
def import_flink_sql(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Flink SQL script.")],
    directory: Annotated[Path | None, typer.Option(help="Where the definitions go. Default: dags/pipelines.")] = None,
    timer_start: Annotated[
        str | None,
        typer.Option(help="When the live job's source started, as 2024-01-31T10:00:00Z: Flink's ticks begin there."),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="files:PATTERN", help="The records of its topics lie in these files, as files:data/*.jsonl."
        ),
    ] = None,
    flink: Annotated[str | None, typer.Option(help="The live job's version of Flink, as 1.20.3.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite definitions of these names.")] = False,
) -> None:
    """Make a definition of each windowed query of a Flink SQL script, with Flink's own parser.

    Comments name the line of the script from which each value comes. What has no counterpart is listed, here and in
    the file; exit code 2 if a query could not become a definition. The first use fetches the parser (16 MB).
    """
    from spark_jobs.definition import load_pipeline
    from spark_jobs.project.flink_import import import_script
    from spark_jobs.project.flink_parser import FlinkParser

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"cannot be read: {error}", str(file), "Name a Flink SQL script.") from None
    with FlinkParser() as parser:
        imported = import_script(text, file.name, parser, timer_start, history, _version(flink))
    texts = {one.name: one.text for one in imported.definitions}
    paths = {name: _new(directory, name, force) for name in texts}
    for name, text in texts.items():
        load_pipeline(paths[name], text=text)
    for name, text in texts.items():
        _write_project(paths[name], name, text)
    if imported.remarks:
        console.print("\nNot, or not exactly, in a definition:")
    for remark in imported.remarks:
        line = f"  line {remark.line}: {remark.what}: {remark.why}"
        console.print(escape(line))
    if paths:
        doubts = "Read the lines with CHECK. " if any("CHECK" in text for text in texts.values()) else ""
        console.print(f"\n{doubts}Then: rewindow check {escape(str(next(iter(paths.values()))))}")
    for one in imported.missing:
        line = f"no definition of {one.name}, the query of line {one.line}: {one.why}"
        console.print(f"[yellow]missing[/] {escape(line)}")
    if imported.missing or not paths:
        raise typer.Exit(2)


@import_app.command("spark")
def import_spark(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", exists=True, file_okay=False, help="The query's checkpointLocation."),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the pipeline. Default: that of the topic.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Where the definition goes. Default: dags/pipelines.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a definition of this name.")] = False,
) -> None:
    """Draft a definition from the checkpoint of a Structured Streaming query.

    Topic, keys, the kind of window and the watermark's delay are there. What a person must fill in says CHECK, and is
    listed.
    """
    from spark_jobs.project.spark_import import draft_of

    draft = draft_of(checkpoint.absolute(), name)
    path = _new(directory, draft.name, force)
    _write_project(path, draft.name, draft.text)
    console.print("\nFill in:")
    for remark in draft.remarks:
        console.print(escape(f"  {remark}"))
    console.print(f"\nThen: rewindow check {escape(str(path))}")


@import_app.command("expectations")
def import_expectations(
    pipeline: PipelineArgument,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A Great Expectations project, a folder of suites, or one suite.")
    ],
    column: Annotated[
        list[str] | None, typer.Option(metavar="THEIRS=OURS", help="A column of the suites has this name here.")
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add to the pipeline's suite if there is one.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the pipeline's suite.")] = False,
) -> None:
    """Make the pipeline's suite of expectations that a Great Expectations project has for the table of its windows.

    An expectation about a column that the windows do not have, of a type of your own, or with arguments that the gate
    refuses has no counterpart: each is listed, with checkpoints and other files. Exit code 2 if none is left.
    """
    from spark_jobs.project.gx_import import import_suites, merged, new_suite, suite_files
    from spark_jobs.quality.suites import expectations_folder

    loaded = load(pipeline)
    pairs = [text.partition("=") for text in column or []]
    for theirs, equals, ours in pairs:
        if not (theirs and equals and ours):
            raise DefinitionError(f"--column: {theirs!r}", hint="Write theirs=ours, as --column amount=amount_sum.")
    path = expectations_folder(loaded) / f"{loaded.name}.json"
    if path.exists() and not (add or force):
        raise DefinitionError("the pipeline has a suite already", str(path), "--add adds to it, --force overwrites it.")
    files = suite_files(source)
    imported = import_suites(files, loaded, {theirs: ours for theirs, _, ours in pairs})
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not force else new_suite(loaded)
    if imported.expectations:
        count = f": {len(imported.expectations)} expectations of {len(files)} suite{'s' if files[1:] else ''}"
        _write(path, json.dumps(merged(before, imported), indent=2, ensure_ascii=False) + "\n", count)
    if imported.notes:
        console.print("\nNot, or not exactly, in the suite:")
    for note in imported.notes:
        console.print(escape(f"  {note.place}: {note.what}: {note.why}"))
    if not imported.expectations:
        raise typer.Exit(2)


def _version(flink: str | None) -> str | None:
    if flink is not None and not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", flink):
        raise DefinitionError(f"--flink: {flink!r}", hint="Write a version, as --flink 1.20.3.")
    return flink


def _new(directory: Path | None, name: str, force: bool) -> Path:
    """Where the definition of this name goes. Raises DefinitionError where there is one already."""
    path = (directory or Path("dags/pipelines")) / f"{name}.yaml"
    if path.exists() and not force:
        raise DefinitionError("there is a definition of this name already", str(path), "--force overwrites it.")
    return path


def _write_project(path: Path, name: str, definition: str) -> None:
    """Write the definition and what `init` writes beside it: suites, DAG files, the editor's schema.

    What is there stays as it is. A folder that is no `dags/pipelines` gets the definition alone.
    """
    from spark_jobs.project.writing import files_around, write_files

    project = Path.cwd() if not path.is_absolute() and path.parent == PIPELINES else _project_of(path)
    if project is None:
        _write(path, definition)
        console.print(f"The folder is no {PIPELINES}: `rewindow init` writes suites and DAG files for it.")
        return
    written, kept = write_files(files_around(name, definition), project, force=True)
    for file in written:
        console.print(f"[green]written[/] {escape(_shown(file))}")
    for file in kept:
        console.print(f"[dim]is there  {escape(_shown(file))}[/]")


def _project_of(path: Path) -> Path | None:
    """The project of a definition in its `dags/pipelines`; None where it lies elsewhere."""
    folder = path.absolute().parent
    return folder.parents[1] if folder.parts[-2:] == PIPELINES.parts else None


def _shown(file: Path) -> str:
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def _write(path: Path, text: str, said: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    console.print(f"[green]written[/] {escape(str(path))}{said}")
