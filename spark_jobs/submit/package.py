"""The package as one archive, for `--py-files`: a cluster needs no installation of Rewindow."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

import spark_jobs
from spark_jobs import __version__

ENTRY = Path(__file__).parent / "main.py"
"""The entry script, for spark-submit."""

_EPOCH = (2020, 1, 1, 0, 0, 0)


def packaged(folder: Path | None = None) -> Path:
    """The archive of this installation's `spark_jobs`; the same files give the same archive, made once."""
    root = Path(spark_jobs.__file__).parent
    files = sorted(file for file in root.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    target = (folder or Path(tempfile.gettempdir())) / f"rewindow-{__version__}-{digest.hexdigest()[:16]}.zip"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".zip", delete=False) as handle:
        with zipfile.ZipFile(handle, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                entry = zipfile.ZipInfo(str(Path("spark_jobs") / file.relative_to(root)), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
        Path(handle.name).replace(target)
    return target
