"""The command line as tests call it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_jobs import cli

Rewindow = Callable[..., tuple[int, str, str]]


def in_process(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], columns: int = 200) -> Rewindow:
    """Runs a command line in this process; gives (exit code, standard output, standard error)."""

    def call(*arguments: str, **variables: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rewindow", *arguments])
        for name, value in {"COLUMNS": str(columns), **variables}.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    return call
