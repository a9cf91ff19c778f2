"""A zone that Java and Python know by different rules is refused; another release alone is not."""

from __future__ import annotations

import shutil
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_jobs.errors import SourceError
from spark_jobs.operations.doctor import Status, zones_check
from spark_jobs.sources import open_history
from spark_jobs.sources.zone_rules import java_release, what_to_update
from spark_jobs.spark.gateway import jvm
from tests.sources.conftest import MakePipeline, records, write_log

SYSTEM = next((Path(folder) for folder in zoneinfo.TZPATH if (Path(folder) / "UTC").exists()), None)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/New_York")
needs_zone_files = pytest.mark.skipif(SYSTEM is None, reason="this system has no zone files")


@pytest.fixture
def python_data(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Sets the release and the zone files of Python's data; `given`: by zone, which zone's file stands for it."""

    def use(release: str, **given: str) -> None:
        assert SYSTEM is not None
        folder = tmp_path / "zones"
        for name in ZONES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SYSTEM / given.get(name, name), folder / name)
        (folder / "tzdata.zi").write_text(f"# version {release}\n")
        zoneinfo.reset_tzpath([str(folder)])
        zoneinfo.ZoneInfo.clear_cache()

    yield use
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@needs_zone_files
def test_other_rules_are_refused_with_both_releases_and_what_to_update(
    spark, tmp_path: Path, pipeline: MakePipeline, python_data: Callable[..., None]
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    python_data("1999z", **{"Europe/Berlin": "Asia/Kathmandu"})
    for name in ZONES:
        defined = pipeline(tmp_path, window={"type": "tumbling", "size": "1 day", "time_zone": name})
        if name != "Europe/Berlin":
            open_history(spark, defined)
            assert zones_check(spark, defined).status is Status.OK
            continue
        with pytest.raises(
            SourceError, match=rf"\({java_release(spark)}\) and Python's \(1999z\) differ for"
        ) as refused:
            open_history(spark, defined)
        assert "first at 1970-01-01" in refused.value.what and "package `tzdata`" in refused.value.hint
        with pytest.raises(SourceError, match="differ for `Europe/Berlin`"):
            zones_check(spark, defined)
    assert zones_check(spark, None).status is Status.WARN


@needs_zone_files
def test_a_change_that_only_one_of_them_knows_is_found(
    spark, tmp_path: Path, pipeline: MakePipeline, python_data: Callable[..., None]
) -> None:
    """New York and Havana have one offset in winter; their summers begin on other days."""
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    python_data("2999a", **{"America/New_York": "America/Havana"})
    defined = pipeline(tmp_path, window={"type": "tumbling", "size": "1 day", "time_zone": "America/New_York"})
    with pytest.raises(SourceError, match="differ for `America/New_York`") as refused:
        open_history(spark, defined)
    assert refused.value.hint == "Install a newer Java."


def test_what_to_update_is_the_older_side() -> None:
    assert what_to_update("2024a", "2025b") == "Install a newer Java."
    assert what_to_update("2025b", "2024a").startswith("Update the system's package `tzdata`")
    both = what_to_update("2025b", "unknown")
    assert both.startswith("Install a newer Java, and update") and both == what_to_update("2025b", "2025b")


def test_a_zone_that_java_does_not_know_is_refused(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    known = set(jvm(spark).java.time.ZoneId.getAvailableZoneIds())
    unknown = next((name for name in ("America/Coyhaique", "Factory", "localtime") if name not in known), None)
    if unknown is None:
        pytest.skip("this Java knows every zone that this Python knows")
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    defined = pipeline(tmp_path)
    window = defined.window.model_copy(update={"time_zone": unknown, "size": 86_400_000})
    with pytest.raises(SourceError, match="have no zone"):
        open_history(spark, defined.model_copy(update={"window": window}))
