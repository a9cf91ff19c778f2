"""What a report says is to be done next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something to do next.

    `command`: a command line to copy. `page`: an address below Rewindow's pages in Airflow where it is done; `label`:
    the text of the link to it. A report that is opened as a file has no such links.
    """

    text: str
    command: str | None = None
    page: str | None = None
    label: str | None = None
