"""Java's time zone data decide, also where Python computes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.eventtime import zones
from spark_jobs.sources import open_history, zone_data
from spark_jobs.spark.gateway import jvm
from tests.sources.conftest import MakePipeline, records, write_log

HOURS = [1_041_379_200_000 + hour * 13 * 3_600_000 for hour in range(20_000)]


def test_python_takes_the_rules_of_a_zone_from_java(
    spark, tmp_path: Path, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_data, "python_release", lambda: "1999z")
    monkeypatch.setattr(zones, "_chosen", {})
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    for name in ("America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"):
        defined = pipeline(tmp_path, window={"type": "tumbling", "size": "1 day", "time_zone": name})
        open_history(spark, defined)
        assert zones.is_chosen(name)
        zone = zones.zone_named(name)
        local = F.from_utc_timestamp(F.timestamp_millis("t"), name)
        frame = spark.createDataFrame([(t,) for t in HOURS[:: 7 if name != "UTC" else 900]], "t BIGINT")
        for row in frame.select("t", F.unix_millis(local).alias("local")).collect():
            moment = datetime.fromtimestamp(row.t // 1000, UTC).astimezone(zone)
            assert row.local - row.t == moment.utcoffset().total_seconds() * 1000
        assert "Python has 1999z" in zone_data.zone_note(spark, defined)


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
