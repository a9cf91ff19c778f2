"""Sixty nights of the command for a year of them: the tables of one full run, flat in seconds, few files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.bench.nights import FLAT, MONTH, WEEK, by_month, differs_from_full_run, run_nights, slower

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

NIGHTS = 2 * MONTH


def test_sixty_nights_end_in_the_tables_of_one_full_run_and_are_flat_in_seconds_and_files(
    spark: SparkSession, tmp_path: Path, rewindow_home: Path
) -> None:
    nights = run_nights(spark, tmp_path, rewindow_home, NIGHTS, print, namespace="sixty_nights")
    assert not differs_from_full_run(spark, tmp_path, namespace="sixty_nights")
    assert all(night.continued for night in nights[1:]), "each night goes on from the one before"
    first, last = by_month(nights)
    print(first, last)
    assert slower([first, last]) < FLAT, (first, last)
    kept = [night for night in nights if night.is_maintained]
    assert kept[-1].files <= kept[0].files + NIGHTS // WEEK, "what a week leaves, maintenance removes"
    assert last["most_files"] <= FLAT * first["most_files"]
