"""A definition in the words of Kafka Streams; what belongs to another engine is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.kafka_streams.task import Emission, StoreState, Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions

BASE = """\
name: p
engine: kafka_streams
history: {kind: kafka, servers: "h:1", topic: t}
value: {format: json, schema: "shop STRING, amount BIGINT, at BIGINT"}
keys: {shop: shop}
event_time: {expression: at, unit: ms}
aggregates: {n: count(*)}
"""
USUAL = "watermark: {grace: 10 min}\nwindow: {type: tumbling, size: 1 h}\n"


def load(tmp_path: Path, text: str) -> Pipeline:
    (tmp_path / "p.yaml").write_text(text)
    return load_pipeline(tmp_path / "p.yaml")


def refused(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, text)
    return [f"{problem.field}: {problem.what}" for problem in error.value.problems]


@pytest.mark.parametrize(
    ("sections", "windows", "retention"),
    [
        ("window: {type: tumbling, size: 1 h}", HoppingWindows(3_600_000, 3_600_000), 4_200_000),
        ("window: {type: hopping, size: 1 h, advance: 15 min}", HoppingWindows(3_600_000, 900_000), 4_200_000),
        ("window: {type: sliding, time_difference: 5 min}", BetweenEvents(300_000), 1_200_000),
        ("window: {type: session, gap: 30 min}", Sessions(1_800_000), 2_400_000),
    ],
)
def test_each_kind_of_window_is_in_the_words_of_the_library(tmp_path, sections: str, windows, retention: int) -> None:
    from spark_jobs.replay.kafka_streams.rules import application_of

    pipeline = load(tmp_path, f"{BASE}watermark: {{grace: 10 min}}\n{sections}\n")
    topology = application_of(pipeline).topology
    assert topology == Topology(windows, 600_000, Emission.EACH_UPDATE)
    assert topology.least_retention == retention
    assert pipeline.end_of_input == "freeze"


@pytest.mark.parametrize(
    ("emission", "emits"),
    [
        ("each_update", Emission.EACH_UPDATE),
        ("on_close", Emission.SUPPRESS),
        ("{kind: on_close, strategy: suppress}", Emission.SUPPRESS),
        ("{kind: on_close, strategy: emit, interval: 0}", Emission.ON_WINDOW_CLOSE),
    ],
)
def test_a_row_comes_out_at_each_update_or_on_close_by_one_of_two_strategies(tmp_path, emission: str, emits) -> None:
    section = load(tmp_path, f"{BASE}{USUAL}emission: {emission}\n").emission
    assert section is not None and section.emits is emits


def test_restarts_are_of_all_tasks_or_of_those_whose_offsets_are_given(tmp_path) -> None:
    from spark_jobs.replay.kafka_streams.rules import application_of
    from spark_jobs.replay.kafka_streams.tasks import TaskRestart

    restarts = "[{offsets: {0: 12, 3: 4}, state: lost}, {at: '2026-03-01T02:00:00Z'}]"
    pipeline = load(
        tmp_path, f"{BASE}watermark: {{grace: 0, restarts: {restarts}}}\nwindow: {{type: tumbling, size: 1 h}}\n"
    )
    application = application_of(pipeline)
    assert application.restarts == {
        0: [TaskRestart(StoreState.LOST, offset=12)],
        3: [TaskRestart(StoreState.LOST, offset=4)],
    }
    assert application.of_all == (TaskRestart(StoreState.LOCAL, instant=1_772_330_400_000),)
    assert application.needs_tasks


def test_parameters_of_flink_are_refused_by_name_with_what_kafka_streams_calls_them(tmp_path) -> None:
    text = (
        f"{BASE}watermark: {{bound: 10 min, generator: lag, idleness: 1 s}}\n"
        "window: {type: sliding, size: 1 h, slide: 5 min}\nallowed_lateness: 1 h\nend_of_input: flush\n"
        "filter: {after_watermark: amount > 0}\npanes: all\n"
    )
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, text)
    hints = {problem.field: problem.hint for problem in error.value.problems}
    assert hints["watermark.bound"] == "Kafka Streams calls it `grace`: write `watermark: {grace: 10 min}`"
    assert hints["window.slide"] == "Kafka Streams calls it `advance`, of `type: hopping`"
    assert "write `time_difference`; or `type: hopping`" in hints["window.time_difference"]
    assert "`before_watermark`" in hints["filter.after_watermark"]
    assert hints.keys() == {
        "watermark.bound",
        "watermark.generator",
        "watermark.idleness",
        "watermark.grace",
        "window.time_difference",
        "window.slide",
        "window.size",
        "allowed_lateness",
        "end_of_input",
        "filter.after_watermark",
        "panes",
    }
    lines = {problem.field: problem.line for problem in error.value.problems}
    assert lines["window.slide"] == 9 and lines["allowed_lateness"] == 10


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ("watermark: {grace: 10}\nwindow: {type: tumbling, size: 1 h}", "watermark.grace: `10` has no unit"),
        (
            "watermark: {grace: 0}\nwindow: {type: cumulative, size: 1 h}",
            "window.type: does not belong to engine `kafka_streams`",
        ),
        ("watermark: {grace: 0}\nwindow: {size: 1 h}", "window.type: is missing"),
        ("watermark: {grace: 0}\nwindow: {type: hopping, size: 1 h, advance: 2 h}", "window.advance: `2 h` is longer"),
        ("watermark: {grace: 0}\nwindow: {type: tumbling, size: 1 h, offset: 5 min}", "window.offset: does not belong"),
        (
            "watermark: {grace: 10 min, retention: 1 h}\nwindow: {type: tumbling, size: 1 h}",
            "watermark.retention: `1 h` is shorter than these windows and the grace need",
        ),
        (
            "watermark: {grace: 0, restarts: [{state: lost}]}\nwindow: {type: tumbling, size: 1 h}",
            "watermark.restarts[0].at: is missing",
        ),
    ],
)
def test_what_the_library_refuses_is_refused(tmp_path, sections: str, problem: str) -> None:
    (found,) = refused(tmp_path, f"{BASE}{sections}\n")
    assert found.startswith(problem)


def test_parameters_of_kafka_streams_are_refused_in_a_definition_of_flink(tmp_path) -> None:
    windows = "{type: hopping, size: 1 h, advance: 5 min}"
    text = f"{BASE}watermark: {{grace: 10 min}}\nwindow: {windows}\nemission: on_close\n"
    assert refused(tmp_path, text.replace("engine: kafka_streams\n", "")) == [
        "watermark.grace: belongs to engine `kafka_streams`",
        "window.type: does not belong to engine `flink`",
        "emission: belongs to engine `kafka_streams`",
    ]


def test_the_hash_of_a_definition_of_flink_is_what_it_was_before_there_were_engines() -> None:
    pipeline = load_pipeline("dags/pipelines/departures_hourly.yaml")
    content = pipeline.to_canonical_json()
    assert '"engine"' not in content and '"emission":null' not in content


def test_an_engine_and_its_grace_change_the_hash(tmp_path) -> None:
    one, other = (load(tmp_path, f"{BASE}{USUAL}".replace("10 min", grace)) for grace in ("10 min", "11 min"))
    assert one.definition_hash != other.definition_hash
