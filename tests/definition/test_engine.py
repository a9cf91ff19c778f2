"""The engine of the live job: its fields in its own words, and those of another engine refused by name."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from spark_jobs.definition.engine import Engine
from spark_jobs.definition.structured_streaming import StreamingWatermark
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.intervals import CalendarInterval
from spark_jobs.eventtime.windows import CalendarSessionWindows, SessionWindows
from spark_jobs.replay.defined_windows import windows_of
from tests.definition.texts import BASE, FLINK, SPARK, TUMBLING, loaded

LIVE = """
live:
  - name: all of it
    source: {{kind: table, table: live.windows}}
    window: {{start: window_start}}
    {}
"""
BAND_OF_FLINK = {
    "interval": "0",
    "source_subtasks": "4",
    "buffer_timeout": "1 s",
    "margin": "1 s",
    "lag_after": "1 s",
    "lags": '[{from: "2026-01-01T00:00:00Z", to: "2026-01-01T01:00:00Z"}]',
}
STREAMS = BASE + "engine: kafka_streams\nwatermark: {grace: 1 min}\n" + TUMBLING


def test_a_structured_streaming_query_is_defined_in_sparks_words(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, SPARK + TUMBLING + "output_mode: update\n")
    assert pipeline.engine is Engine.SPARK
    assert isinstance(pipeline.watermark, StreamingWatermark)
    assert pipeline.watermark.delay == 600_000
    assert pipeline.watermark.allow_multiple
    assert pipeline.output_mode is OutputMode.UPDATE
    assert (pipeline.end_of_input, pipeline.event_time.missing) == ("freeze", "drop")


def test_what_is_left_out_is_as_spark_has_it(tmp_path: Path) -> None:
    assert loaded(tmp_path, SPARK + TUMBLING).output_mode is OutputMode.APPEND


def test_a_definition_of_flink_has_the_hash_that_it_had_before_there_were_others(tmp_path: Path) -> None:
    canonical = loaded(tmp_path, FLINK).to_canonical_json()
    assert '"engine"' not in canonical
    assert '"output_mode"' not in canonical


def test_the_engine_and_what_decides_are_part_of_the_definition(tmp_path: Path) -> None:
    first = loaded(tmp_path, SPARK + TUMBLING).definition_hash
    assert first != loaded(tmp_path, SPARK + TUMBLING + "output_mode: update\n").definition_hash
    changed = SPARK.replace("checkpoint: /c", "checkpoint: /c, allow_multiple: false")
    assert first != loaded(tmp_path, changed + TUMBLING).definition_hash
    changed = SPARK.replace("checkpoint: /c", "checkpoint: /c, gaps: approximate, trigger: 10 s")
    assert first != loaded(tmp_path, changed + TUMBLING).definition_hash


def test_a_variable_may_say_where_the_checkpoint_is_and_changes_no_hash(tmp_path: Path, monkeypatch) -> None:
    text = SPARK.replace("checkpoint: /c", "checkpoint: '${LAKE_QUERIES:-/srv}/c'") + TUMBLING
    first = loaded(tmp_path, text)
    monkeypatch.setenv("LAKE_QUERIES", "/elsewhere")
    second = loaded(tmp_path, text)
    assert [one.watermark.model_dump()["checkpoint"] for one in (first, second)] == ["/srv/c", "/elsewhere/c"]
    assert first.definition_hash == second.definition_hash


def test_a_definition_without_gaps_is_the_one_that_it_was(tmp_path: Path) -> None:
    canonical = loaded(tmp_path, SPARK + TUMBLING).to_canonical_json()
    assert '"gaps"' not in canonical
    assert '"trigger"' not in canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SPARK.replace("delay: 10 minutes", "delay: 10 min, bound: 1 min") + TUMBLING,
            "watermark.bound: does not belong to engine `spark`; Spark calls it `delay`",
        ),
        (
            SPARK.replace("delay: 10 minutes", "delay: 10 min, idleness: 1 min") + TUMBLING,
            "watermark.idleness: does not belong to engine `spark`; Structured Streaming has no counterpart",
        ),
        (BASE + "engine: spark\nwatermark: {delay: 1 min}\n" + TUMBLING, "watermark.checkpoint: is missing"),
        (
            SPARK.replace("checkpoint: /c", "checkpoint: /c, gaps: approximate") + TUMBLING,
            "watermark.trigger: is needed with `gaps: approximate`",
        ),
        (
            SPARK.replace("checkpoint: /c", "checkpoint: /c, trigger: 10 s") + TUMBLING,
            "watermark.trigger: is needed with `gaps: approximate`",
        ),
        (BASE + "engine: spark\nwatermark: {checkpoint: /c}\n" + TUMBLING, "watermark.delay: is missing"),
        (SPARK + TUMBLING + "allowed_lateness: 1 h\n", "allowed_lateness: does not belong to engine `spark`"),
        (SPARK + TUMBLING + "end_of_input: flush\n", "end_of_input: does not belong to engine `spark`"),
        (
            SPARK + "window: {type: cumulative, size: 1 h, step: 10 min}\n",
            "window.type: Structured Streaming has no such windows",
        ),
        (
            SPARK + "window: {type: tumbling, size: 1 day, time_zone: Europe/Berlin}\n",
            "window.time_zone: does not belong to engine `spark`",
        ),
        (
            SPARK + "window: {type: session, gap: 1 month}\n",
            "window.gap: a gap in months or years follows a calendar; name the query's `spark.sql.session.timeZone`",
        ),
        (
            SPARK + "window: {type: session, gap: 1.5 days, time_zone: UTC}\n",
            "window.gap: `1.5 days` is not an interval; write one like `1 day`",
        ),
        (
            SPARK + "window: {type: session, gap: 1 day -2 days, time_zone: UTC}\n",
            "window.gap: `1 day -2 days` is not positive",
        ),
        (
            SPARK + "window: {type: session, gap_expression: v, time_zone: UTC}\n",
            "window.gap: a time zone is for a gap in days or months",
        ),
        (
            SPARK + "window: {type: session, gap: 1 day, time_zone: Europe/Berln}\n",
            "window.time_zone: `Europe/Berln` is not a time zone; write `Europe/Berlin`",
        ),
        (
            FLINK.replace(TUMBLING, "") + "window: {type: session, gap: 1 day, time_zone: UTC}\n",
            "window.time_zone: belongs to engine `spark`",
        ),
        (
            SPARK.replace("checkpoint: /c", "checkpoint: /c, no_data_batches: false") + TUMBLING,
            "watermark.no_data_batches: says nothing without `gaps: approximate`",
        ),
        (
            SPARK + "window: {type: session, gap: 1 min}\noutput_mode: update\n",
            "output_mode: Spark refuses sessions in update mode",
        ),
        (SPARK.replace("10 minutes", "10 sheep") + TUMBLING, "watermark.delay: `10 sheep` is not a duration"),
        (SPARK.replace("engine: spark", "engine: beam") + TUMBLING, "engine: `beam` is not known"),
        (
            FLINK.replace("generator: ascending", "delay: 1 min"),
            "watermark.delay: belongs to engine `spark`; write `engine: spark`; Flink calls it `bound`",
        ),
        (FLINK + "output_mode: update\n", "output_mode: belongs to engine `spark`"),
        (
            SPARK + TUMBLING + LIVE.format("definition: {window: {type: tumbling, size: 1 min}}"),
            "live[0].definition: does not belong to engine `spark`; a query with other rules has another checkpoint",
        ),
        (
            SPARK + TUMBLING + LIVE.format('restarts: ["2026-01-01T00:00:00Z"]'),
            "live[0].restarts: does not belong to engine `spark`; the checkpoint knows the starts of the query",
        ),
        (
            STREAMS + LIVE.format("definition: {allowed_lateness: 1 h}"),
            "live[0].definition: does not belong to engine `kafka_streams`; compare that time with a definition of its",
        ),
        (
            STREAMS + LIVE.format('restarts: ["2026-01-01T00:00:00Z"]'),
            "live[0].restarts: does not belong to engine `kafka_streams`; write `watermark.restarts`",
        ),
        *(
            (engine + LIVE.format(f"{name}: {value}"), f"live[0].{name}: does not belong to engine `{called}`; {hint}")
            for engine, called, hint in (
                (SPARK + TUMBLING, "spark", "which records were late follows from the micro-batches: leave it out"),
                (
                    STREAMS,
                    "kafka_streams",
                    "a task reads its partition in the order of the log: leave it out",
                ),
            )
            for name, value in BAND_OF_FLINK.items()
        ),
    ],
)
def test_what_belongs_to_another_engine_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, text)
    assert message in str(refused.value)


def test_a_gap_with_a_time_zone_is_an_interval_of_its_calendar(tmp_path: Path) -> None:
    text = SPARK + "window: {type: session, gap: 1 month 2 days, time_zone: Europe/Berlin}\n"
    windows = windows_of(loaded(tmp_path, text))
    assert windows == CalendarSessionWindows(CalendarInterval(1, 2), ZoneInfo("Europe/Berlin"))
    plain = loaded(tmp_path, SPARK + "window: {type: session, gap: 1 day}\n")
    assert windows_of(plain) == SessionWindows(86_400_000), "24 hours, as in UTC"
    assert '"time_zone"' not in plain.to_canonical_json(), "the hash is what it was"
