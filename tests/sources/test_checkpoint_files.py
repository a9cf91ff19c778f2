"""The files of a checkpoint, before they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import SourceError
from spark_jobs.sources.checkpoint import checkpoint_files


def test_a_checkpoint_without_the_id_of_its_query_is_refused(spark, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with pytest.raises(SourceError, match="has no file `metadata`, in which the query's id is"):
        checkpoint_files(spark, str(tmp_path))
    (tmp_path / "metadata").write_text('{"id":"c0ffee"}')
    assert set(checkpoint_files(spark, str(tmp_path)).stamps) == {"offsets/0", "metadata"}
