"""`rewindow`, and `python -m spark_jobs`: the command line, which ends in one sentence from its first moment on."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line, which takes a second, and run it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from spark_jobs.cli import main as command_line

    command_line()


def _end(number: int, _: object) -> None:
    os.write(2, b"interrupted: nothing was done yet. Start the command again\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
