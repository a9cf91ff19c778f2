"""The parts of Rewindow that a machine may leave out: the extras of its package, such as `rewindow[report]`."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import url2pathname

from spark_jobs.errors import EnvironmentSetupError


class Part(StrEnum):
    """An extra of the package, as `pip install 'rewindow[gate]'` names it."""

    AIRFLOW = "airflow"
    GATE = "gate"
    REPORT = "report"
    S3 = "s3"


MODULES = {
    Part.AIRFLOW: ("airflow", "httpx", "psutil"),
    Part.GATE: ("great_expectations",),
    Part.REPORT: ("altair", "vl_convert"),
    Part.S3: ("s3fs",),
}
"""By part: the modules by which it is recognized."""


def missing_modules(part: Part) -> list[str]:
    """The modules of a part that are not installed."""
    return [name for name in MODULES[part] if find_spec(name) is None]


def install_command(part: Part) -> str:
    """How a part is installed: from where this package came, if that was no registry (PEP 610)."""
    try:
        origin = json.loads(distribution("rewindow").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install --editable '{url2pathname(urlsplit(origin['url']).path)}[{part}]'"
    return f"pip install 'rewindow[{part}]{' @ ' + origin['url'] if origin else ''}'"


def require(part: Part, what: str, otherwise: str = "") -> None:
    """Make sure that a part is there.

    Args:
        what: What needs it, as the beginning of a sentence.
        otherwise: What a person can do instead of installing it.

    Raises:
        EnvironmentSetupError: It is not; with the command that installs it.
    """
    missing = missing_modules(part)
    if missing:
        hint = f"Run {install_command(part)}" + (f", or {otherwise}" if otherwise else "") + "."
        verb = "is" if len(missing) == 1 else "are"
        raise EnvironmentSetupError(f"{what} needs {' and '.join(missing)}, which {verb} not installed", "", hint)


def error_of(problem: ImportError) -> EnvironmentSetupError | None:
    """The error to show where an import failed for a part that is missing; None for any other import."""
    name = (problem.name or "").partition(".")[0]
    for part, modules in MODULES.items():
        if name in modules:
            return EnvironmentSetupError(
                f"this needs {name}, which is not installed", "", f"Run {install_command(part)}."
            )
    return None
