"""The application that the commands join, and its entry point."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.interrupt import end_as_the_command_does, leave_the_end_to_the_watcher
from spark_jobs.cli.options import errors
from spark_jobs.errors import RewindowError
from spark_jobs.parts import error_of
from spark_jobs.spark.java import java_reason

app = typer.Typer(
    name="rewindow",
    help="Replays bounded history through the event-time logic of the live streaming job.\n\n"
    "Start with `rewindow check PIPELINE`, then `rewindow plan PIPELINE`, then `rewindow run PIPELINE`.\n\n"
    "Exit codes: 0 done, 1 unexpected, 2 definition or command line, 3 gate closed, "
    "4 source, 5 history breaks a rule, 6 nothing in the range, 7 catalog, 8 environment, 9 the run's state.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from spark_jobs import __version__

        print(f"rewindow {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole story of an error; may stand anywhere in the command line.")
    ] = False,
) -> None:
    """Options that all commands have."""


def main() -> None:
    """Entry point of the console script: errors become short messages and documented exit codes."""
    end_as_the_command_does()
    debug = "--debug" in sys.argv
    argv = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if argv[:1] not in (["archive"], ["corrections"]):  # of the others, `--dry-run` alone means the plan
        argv = ["--dry-run=plan" if argument == "--dry-run" else argument for argument in argv]
    try:
        app(args=argv, standalone_mode=True)
    except RewindowError as problem:
        leave_the_end_to_the_watcher()
        if debug:
            raise
        errors.print(f"[bold red]error[/]: {escape(str(problem))}")
        raise SystemExit(problem.exit_code) from None
    except KeyboardInterrupt:
        leave_the_end_to_the_watcher()
        errors.print("interrupted: nothing was published")
        raise SystemExit(130) from None
    except Exception as problem:
        leave_the_end_to_the_watcher()
        if debug:
            raise
        if (known := _known(problem)) is not None:
            errors.print(f"[bold red]error[/]: {escape(str(known))}")
            raise SystemExit(known.exit_code) from None
        message = known_failure(problem)
        errors.print(f"[bold red]error[/]: {escape(message)}")
        raise SystemExit(1) from None


def _known(problem: Exception) -> RewindowError | None:
    """What Rewindow can say of an error of others: a part that is missing, a catalog that does not answer."""
    if isinstance(problem, ImportError):
        return error_of(problem)
    from spark_jobs.spark.failures import catalog_failure  # brings PySpark, which is there when it has failed

    return catalog_failure(problem)


def known_failure(problem: BaseException) -> str:
    """An unexpected error on one line: Java's own reason, and the stage in which it came up."""
    text = str(problem)
    if "No space left on device" in text:
        return "the disk is full. Free space under REWINDOW_HOME and the temporary folder, and run again"
    first = next((line for line in text.splitlines() if line.strip()), type(problem).__name__)
    if getattr(problem, "java_exception", None) is not None:  # the text says only that something was called
        first = java_reason(problem)
    where = "".join(f" ({note})" for note in getattr(problem, "__notes__", ()))
    return f"{first.strip()[:400]}{where}. Add --debug for the whole story"
