"""The project that a definition belongs to."""

from __future__ import annotations

import os
from pathlib import Path


def project_folder(path: str | os.PathLike[str]) -> Path:
    """The folder where the relative paths of the definition in this file start."""
    folder = Path(path).absolute().parent
    if folder.name == "pipelines" and folder.parent.name == "dags":
        return folder.parent.parent
    return folder
