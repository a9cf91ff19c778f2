"""What a history's files prove, also where there are too many to be listed."""

from __future__ import annotations

import json
import random
import string

import pytest

from spark_jobs.identities import LISTED_FILES, FilesSince, Identity
from spark_jobs.pins import PinnedFile
from spark_jobs.runs.night.reading import Reading

FEW, MANY = 100, LISTED_FILES + 100


def files(count: int) -> tuple[PinnedFile, ...]:
    draw = random.Random(1)
    names = ("".join(draw.choices(string.ascii_lowercase, k=36)) for _ in range(count))
    return tuple(
        PinnedFile(f"s3a://lake/raw/departures/day={n // 400}/part-{n:05}-{name}.c000.snappy.parquet", 1000 + n, n)
        for n, name in enumerate(names)
    )


@pytest.mark.parametrize("count", [FEW, MANY])
def test_files_that_come_and_go_are_told(count: int) -> None:
    every = files(count)
    then = Identity().with_files(every[:-2])
    assert FilesSince.between(then, Identity(files=every[:-2])) == FilesSince(0, (), ())
    assert FilesSince.between(then, Identity(files=every[3:])) == FilesSince(3, (), every[-2:])


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_file_that_was_written_again_is_told(count: int) -> None:
    every = files(count)
    again = PinnedFile(every[5].path, every[5].size, every[5].modified + 1)
    found = FilesSince.between(Identity().with_files(every), Identity(files=(*every[:5], again, *every[6:])))
    if count == FEW:
        assert found == FilesSince(0, ((every[5], again),), ())
    else:  # its rows are looked into: they lie below the ends that were read
        assert found == FilesSince(1, (), (again,))


def test_a_hundred_thousand_files_make_no_state_of_megabytes() -> None:
    reading = Reading((Identity(),), {}, None, "placed").named_by([files(100_000)])
    text = json.dumps(reading.to_json())
    assert len(text) < 1_000_000
    assert Reading.from_json(json.loads(text)) == reading
