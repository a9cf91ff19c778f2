"""Commands that bring what people have: `rewindow import flink-sql`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import console
from spark_jobs.errors import DefinitionError

import_app = typer.Typer(help="Bring what you have: a definition from a Flink SQL script.", no_args_is_help=True)
app.add_typer(import_app, name="import")


@import_app.command("flink-sql")
def import_flink_sql(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Flink SQL script.")],
    directory: Annotated[Path | None, typer.Option(help="Where the definitions go. Default: dags/pipelines.")] = None,
    timer_start: Annotated[
        str | None,
        typer.Option(help="When the live job's source started, as 2024-01-31T10:00:00Z: Flink's ticks begin there."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite definitions of these names.")] = False,
) -> None:
    """Make a definition of each windowed query of a Flink SQL script, with Flink's own parser.

    Comments name the line of the script from which each value comes. What has no counterpart is listed, here and in
    the file; exit code 2 if no query could become a definition. The first use fetches the parser (16 MB).
    """
    from spark_jobs.definition import load_pipeline
    from spark_jobs.project.flink_import import import_script
    from spark_jobs.project.flink_parser import FlinkParser

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"cannot be read: {error}", str(file), "Name a Flink SQL script.") from None
    with FlinkParser() as parser:
        imported = import_script(text, file.name, parser, timer_start)
    folder = directory or Path("dags/pipelines")
    paths = [(folder / f"{definition.name}.yaml", definition) for definition in imported.definitions]
    for path, definition in paths:
        if path.exists() and not force:
            raise DefinitionError("there is a definition of this name already", str(path), "--force overwrites it.")
        load_pipeline(path, text=definition.text)
    for path, definition in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(definition.text, encoding="utf-8")
        console.print(f"[green]written[/] {escape(str(path))}", soft_wrap=True, highlight=False)
    if imported.remarks:
        console.print("\nNot, or not exactly, in a definition:")
    for remark in imported.remarks:
        line = f"  line {remark.line}: {remark.what}: {remark.why}"
        console.print(escape(line), soft_wrap=True, highlight=False)
    if not paths:
        raise typer.Exit(2)
    console.print(f"\nRead the lines with CHECK. Then: rewindow check {escape(str(paths[0][0]))}", soft_wrap=True)
