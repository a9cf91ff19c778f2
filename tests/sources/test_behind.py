"""Rows of a frame, told by the file that they are in."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.pins import PinnedFile
from spark_jobs.sources.lake.behind import records_in, records_outside


def test_rows_are_told_by_their_file_whatever_its_name(spark, tmp_path: Path) -> None:
    names = ["plain", "two words", "day=2024-01-01 00%3A00", "é+[1]{2}#?;,"]
    files = []
    for name in names:
        path = tmp_path / "a folder" / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        files.append(PinnedFile(f"file:{path}", path.stat().st_size, 0))
    frame = spark.read.text(str(tmp_path / "a folder"))
    for name, file in zip(names, files, strict=True):
        chosen = records_in(frame, [file])
        assert chosen is not None and [row[0] for row in chosen.collect()] == [name]
    assert [row[0] for row in records_outside(frame, files[1:]).collect()] == ["plain"]
