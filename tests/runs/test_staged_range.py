"""`staged.json` with a range that is none is a damaged document, as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import DocumentError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.runs.life.documents import StagedRange
from spark_jobs.runs.life.store import RunStore


@pytest.mark.parametrize("reach", [[1], [], [1, 2, 3], [1, "x"], ["1", None], "text", 7, {"start": 1}])
def test_a_reach_that_is_no_pair_is_refused_with_its_file(tmp_path: Path, reach: Any) -> None:
    folder = RunStore(str(tmp_path)).folder("night-1")
    folder.write(StagedRange.FILE, {"reach": reach, "replaces": False})
    with pytest.raises(DocumentError, match="the document is damaged: reach") as refused:
        StagedRange.read(folder)
    assert refused.value.where.endswith("night-1/staged.json")


def test_a_pair_is_read(tmp_path: Path) -> None:
    folder = RunStore(str(tmp_path)).folder("night-1")
    StagedRange(reach=TimeRange(1, 2), replaces=False, recent=TimeRange(3, 4), expected={}).write(folder)
    staged = StagedRange.read(folder)
    assert staged is not None and (staged.reach, staged.recent) == (TimeRange(1, 2), TimeRange(3, 4))
