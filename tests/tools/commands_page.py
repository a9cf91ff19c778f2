"""Write `docs/commands.md` from the command line itself: `python -m tests.tools.commands_page`, in the root."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

PAGE = Path("docs/commands.md")

EXIT_CODES = {
    0: "done",
    1: "unexpected",
    2: "definition or command line",
    3: "not published: the gate is closed, or a person must approve; `compare`: a window differs without a cause",
    4: "source: a table, column or file is missing, truncated, mixed or unreachable",
    5: "the history breaks a rule: duplicated offsets, arrivals that go back, more quarantine than allowed",
    6: "nothing in the range",
    7: "catalog unreachable or not writable, disk full",
    8: "environment: Java, jars, a variable with a value that cannot be used",
    9: "the state of the run does not allow it: it has ended, a process works on it, or not everything is staged",
}
"""The exit codes of all commands."""

_INTRODUCTION = """\
# Commands

`rewindow COMMAND --help` prints the same for one command. In a checkout the program is `.venv/bin/rewindow`.
`PIPELINE` is a YAML file, or the name of one in `dags/pipelines`. A range `[from, to)` selects windows by their start.
Times need a zone. `--debug`, with any command, adds the traceback to an error.

You can repeat a run. Windows with the same values do not change; windows with other values get a new revision. A run
that is killed does not change the published windows.

`python -m tests.tools.commands_page` generates this page from `spark_jobs/cli/`; do not edit it by hand.
"""

_CODES = """\
## Exit codes

Every error says what happened, where, and how to fix it.

| exit code | meaning |
| --- | --- |
"""


def commands_page() -> str:
    """The page: a table of all commands, one section for each with its arguments and options, the exit codes."""
    named = commands()
    overview = ["| command | what it does |", "| --- | --- |"]
    overview += [f"| [`{name}`](#{_anchor(name)}) | {_first_sentence(command)} |" for name, command in named]
    sections = [_section(name, command) for name, command in named]
    codes = _CODES + "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    return "\n".join([_INTRODUCTION, *overview, "", *sections, codes]) + "\n"


def commands() -> list[tuple[str, Any]]:
    """The full name and the command of every command, by name."""
    import spark_jobs.cli  # noqa: F401 - the commands join the application
    from spark_jobs.cli.app import app

    return sorted(_commands(typer.main.get_command(app), ()))


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The full name and the command of everything below a group that is not hidden."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _first_sentence(command: Any) -> str:
    text = _cell(command.help)
    return text.partition(". ")[0].rstrip(".")


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
    usage = " ".join(["rewindow", name, *(_argument(argument) for argument in arguments)])
    lines = [f"## {name}", "", f"    {usage}{' [OPTIONS]' if options else ''}", "", inspect.cleandoc(command.help), ""]
    if options:
        lines += ["| option | meaning | default |", "| --- | --- | --- |"]
        lines += [f"| {_option(option)} | {_cell(option.help)} | {_default(option)} |" for option in options] + [""]
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    value = f" `{_cell(option.metavar)}`" if option.metavar else ""
    return f"{names}{value}" + (" (required)" if option.required else "")


def _default(option: Any) -> str:
    default = option.default
    if option.is_flag:
        return f"`{option.opts[0]}`" if default and option.secondary_opts else ""
    return "" if default is None or default == "" or callable(default) else f"`{default}`"


def _cell(text: str | None) -> str:
    """A text on one line, in which no bar ends a table's cell."""
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
