# pyright: reportCallIssue=false
# ruff: noqa: E501 (a message stands on one line)
"""The watermark section: each generator's parameters, the timer, partitions and subtasks, Flink's version."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_jobs.definition.custom import check_class
from spark_jobs.definition.watermark import EXAMPLES, PARAMETERS, Watermark
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.flink.suppliers import GeneratorKind

BOUNDED = "generator: bounded_out_of_orderness\n  bound: 30 min"
GENERATOR_CLASS = """
class Follow:
    def __init__(self, step=1):
        self.step = step

    def on_event(self, timestamp, arrival, output):
        output.emit_watermark(timestamp)

    def on_periodic_emit(self, now, output):
        pass


class Half:
    def on_event(self, timestamp, arrival, output):
        pass


class Narrow(Follow):
    def on_periodic_emit(self, now):
        pass


def helper():
    pass
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "rewindow_user_generators"
    (tmp_path / f"{name}.py").write_text(GENERATOR_CLASS)
    (tmp_path / f"{name}_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("kind", [kind for kind in GeneratorKind if kind is not GeneratorKind.CUSTOM])
def test_each_generator_loads_with_its_parameters(load, definition, kind: GeneratorKind) -> None:
    lines = [f"generator: {kind}", *(f"{name}: {EXAMPLES[name]}" for name in PARAMETERS[kind].needed)]
    if kind is GeneratorKind.ADVANCE_AFTER_WAIT:
        lines += ["emission: periodic", "timer_start: 2013-01-01T10:00:00Z"]
    watermark = load(definition((BOUNDED, "\n  ".join(lines)))).watermark
    assert watermark.generator == kind
    assert all(getattr(watermark, name) is not None for name in PARAMETERS[kind].needed)


@pytest.mark.parametrize("kind", [kind for kind in GeneratorKind if PARAMETERS[kind].needed])
def test_a_generator_names_each_parameter_it_misses(refusals, definition, kind: GeneratorKind) -> None:
    text = definition((BOUNDED, f"generator: {kind}\n  interval: 0"))
    assert sorted(refusals(text)) == sorted(
        f"p.yaml:9: watermark.{name}: is missing: generator `{kind}` needs it; write `{name}: {EXAMPLES[name]}`"
        for name in PARAMETERS[kind].needed
    )


def test_a_parameter_of_another_generator_names_the_ones_that_take_it(refusals, definition) -> None:
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  lag: 3 s"))) == [
        "p.yaml:12: watermark.lag: does not belong to generator `bounded_out_of_orderness`; it is a parameter of "
        "lag, average_of_last, time_lag, punctuated; `bounded_out_of_orderness` takes bound"
    ]
    assert refusals(definition(("bounded_out_of_orderness", "ascending"))) == [
        "p.yaml:11: watermark.bound: does not belong to generator `ascending`; it is a parameter of "
        "bounded_out_of_orderness, advance_after_wait, interleaved; `ascending` takes no parameters"
    ]


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("bound: 30 min", "bound: -30 min"), "11: watermark.bound: `-30 min` is negative; write 0 or a positive duration"),
        (("bound: 30 min", "bound: 30"), "11: watermark.bound: `30` has no unit; write `30 ms`, `30 s` or `30 min`"),
        (("bound: 30 min", "bound: forever"), "11: watermark.bound: `forever` has no meaning here; only `allowed_lateness` can be `forever`"),
        (("bound: 30 min", "bound: [30]"), "11: watermark.bound: `[30]` is not a duration; write one like `30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"),
        (("bounded_out_of_orderness", "bounded"), "10: watermark.generator: `bounded` is not known; write `bounded_out_of_orderness`"),
        (("bound: 30 min", "bound: 30 min\n  emission: per-event"), "12: watermark.emission: `per-event` is not known; write `per_event`"),
        (("bound: 30 min", "bound: 30 min\n  scope: split"), "12: watermark.scope: `split` is not known; write one of partition, subtask"),
        ((BOUNDED, "generator: average_of_last\n  last: true\n  lag: 0"), "11: watermark.last: `true` is not a whole number; write `last: 10`"),
        ((BOUNDED, "generator: average_of_last\n  last: 0\n  lag: 0"), "11: watermark.last: `0`: input should be greater than or equal to 1; write `last: 10`"),
        ((BOUNDED, "generator: interleaved\n  bound: 0\n  stream: d\n  streams: [a, a]"), "13: watermark.streams: stream a is given twice; name each once"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused(refusals, definition, replacement, message: str) -> None:
    assert refusals(definition(replacement)) == [f"p.yaml:{message}"]


def test_periodic_emission_ticks_every_200_ms_unless_told(load, definition) -> None:
    timer = "bound: 30 min\n  emission: periodic\n  timer_start: 2013-01-01T11:00:00+01:00"
    watermark = load(definition(("bound: 30 min", timer))).watermark
    assert (watermark.interval, watermark.timer_start) == (200, 1_357_034_400_000)
    watermark = load(definition(("bound: 30 min", timer + "\n  interval: 1 min"))).watermark
    assert watermark.interval == 60_000


def test_the_phase_of_a_timer_is_not_guessed(refusals, definition) -> None:
    expected = (
        "p.yaml:9: watermark.timer_start: is missing: with a timer the result depends on when it ticks, which is not to "
        "be guessed; write when the live job's source started, like `timer_start: 2013-01-01T10:00:00Z`"
    )
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  emission: periodic"))) == [expected]
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  idleness: 1 min\n  interval: 1 s"))) == [expected]


def test_idleness_without_a_timer_must_be_said(load, refusals, definition) -> None:
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  idleness: 45 min")))[0] == (
        "p.yaml:9: watermark.interval: is missing: idleness is noticed only at the ticks of a timer, and per_event emission "
        "has none by default; write `interval: 200 ms` (Flink's default), or `interval: 0` if the live job ran without a timer"
    )
    pipeline = load(definition(("bound: 30 min", "bound: 30 min\n  idleness: 45 min\n  interval: 0")))
    assert (pipeline.watermark.idleness, pipeline.watermark.interval) == (2_700_000, 0)


def test_a_timer_without_ticks_is_refused(refusals, definition) -> None:
    timer = "bound: 30 min\n  timer_start: 2013-01-01T10:00:00Z"
    assert refusals(definition(("bound: 30 min", timer))) == [
        "p.yaml:12: watermark.timer_start: there is no timer to start (interval is 0); leave it out, or set `interval`"
    ]
    assert refusals(definition(("bound: 30 min", f"{timer}\n  emission: periodic\n  interval: 0"))) == [
        "p.yaml:14: watermark.interval: periodic emission with interval 0 never emits; write `interval: 200 ms` (Flink's default)"
    ]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (
            "2013-01-01T10:00:00",
            "write `2013-01-01T10:00:00Z` if it is UTC, else its offset: `2013-01-01T10:00:00+01:00`",
        ),
        ("2013-01-01", "write `2013-01-01T00:00:00Z` if it is UTC, else its offset: `2013-01-01T00:00:00+01:00`"),
    ],
)
def test_a_time_without_zone_is_refused(refusals, definition, written: str, hint: str) -> None:
    timer = f"bound: 30 min\n  emission: periodic\n  timer_start: {written}"
    assert refusals(definition(("bound: 30 min", timer))) == [
        f"p.yaml:13: watermark.timer_start: `{written}` has no zone; {hint}"
    ]


def test_partitions_are_a_count_or_a_list_or_those_of_the_subtasks(load, definition) -> None:
    def partitions(text: str) -> tuple[int, ...]:
        return load(definition(("bound: 30 min", f"bound: 30 min\n  {text}"))).watermark.partitions

    assert partitions("partitions: 3") == (0, 1, 2)
    assert partitions("partitions: [7, 2]") == (2, 7)
    assert partitions("subtasks: [[0, 2], [1]]") == (0, 1, 2)
    assert partitions("flink: '2.3'") is None


def test_the_subtasks_must_read_each_registered_partition_once(refusals, definition) -> None:
    def messages(text: str) -> list[str]:
        return refusals(definition(("bound: 30 min", f"bound: 30 min\n  {text}")))

    assert messages("partitions: 3\n  subtasks: [[0, 1], [4]]") == [
        "p.yaml:12: watermark.partitions: partition 2 is read by none of the subtasks; add it to `subtasks`",
        "p.yaml:12: watermark.partitions: partition 4 of `subtasks` is not registered; add it to `partitions`",
    ]
    assert messages("partitions: 2\n  discovered: {2: 2013-01-01T10:00:00Z}") == [
        "p.yaml:13: watermark.discovered: partition 2 is not registered; write it under `partitions` too"
    ]
    assert messages("partitions: 2\n  discovered: {1: 2013-01-01}")[0].startswith("p.yaml:13: watermark.discovered")
    assert messages("subtasks: [[0, 1], [1]]") == [
        "p.yaml:12: watermark.subtasks: partition 1 is given twice; name each once"
    ]
    assert messages("subtasks: [[], []]") == [
        "p.yaml:12: watermark.subtasks: no subtask reads a partition; write those that each reads, like `[[0, 1], [2]]`"
    ]
    assert messages("partitions: 0") == [
        "p.yaml:12: watermark.partitions: `0` is not a count of partitions; write 1 to 100000, or a list of partition ids"
    ]
    assert messages("partitions: [0, -1]") == [
        "p.yaml:12: watermark.partitions[1]: `-1`: input should be greater than or equal to 0"
    ]


@pytest.mark.parametrize(
    ("version", "emits"), [("2.3", True), ("2.2.0", True), ("2.1.3", False), ("1.20.3", False), ("10.0", True)]
)
def test_all_idle_emits_the_maximum_since_flink_2_2(version: str, emits: bool) -> None:
    assert Watermark(generator="ascending", flink=version).all_idle_emits_maximum is emits


def test_a_version_that_yaml_reads_as_a_number_is_refused(refusals, definition) -> None:
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  flink: 1.20"))) == [
        'p.yaml:12: watermark.flink: `1.2` is a number, and 1.20 would read as 1.2; write it in quotes, like `flink: "2.3"`'
    ]
    assert refusals(definition(("bound: 30 min", "bound: 30 min\n  flink: latest"))) == [
        'p.yaml:12: watermark.flink: `latest` is not a Flink version; write one like "2.3" or "1.20.3"'
    ]


def test_a_custom_class_loads_with_its_parameters(load, definition, user_module: str) -> None:
    custom = f"generator: custom\n  class: {user_module}:Follow\n  parameters: {{step: 5}}"
    pipeline = load(definition((BOUNDED, custom)))
    check_class(pipeline)
    watermark = pipeline.watermark
    assert (watermark.custom_class, watermark.parameters) == (f"{user_module}:Follow", {"step": 5})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("class: M.Follow", "class: `M.Follow` does not name a class; write `module:Class`"),
        ("class: M_absent:Follow", "class: module `M_absent` cannot be imported: ModuleNotFoundError: No module named 'M_absent'; install it beside Rewindow or put its folder on PYTHONPATH"),
        ("class: M_broken:Follow", "class: module `M_broken` cannot be imported: ZeroDivisionError: division by zero; install it beside Rewindow or put its folder on PYTHONPATH"),
        ("class: M:Folow", "class: module `M` has no class `Folow`; write `M:Follow`"),
        ("class: M:helper", "class: module `M` has no class `helper`; name a class of that module"),
        ("class: M:Half", "class: class `Half` has no method `on_periodic_emit`; add `def on_periodic_emit(self, now, output)`"),
        ("class: M:Narrow", "class: method `on_periodic_emit` of class `Narrow` does not take (now, output); add `def on_periodic_emit(self, now, output)`"),
        ("parameters: {stride: 5}\n  class: M:Follow", "parameters: `Follow` cannot be made with them: got an unexpected keyword argument 'stride'; it takes step"),
    ],
)  # fmt: skip
def test_a_custom_class_that_could_not_run_is_refused(
    load, refusals, definition, user_module: str, lines: str, message: str
) -> None:
    text = definition((BOUNDED, "generator: custom\n  " + lines.replace("M", user_module, 1)))
    expected = (
        message.replace("`M`", f"`{user_module}`").replace("`M:", f"`{user_module}:").replace("`M.", f"`{user_module}.")
    )
    expected = expected.replace("M_absent", f"{user_module}_absent").replace("M_broken", f"{user_module}_broken")
    if "does not name a class" in message:
        assert refusals(text) == [f"p.yaml:11: watermark.{expected}"]
        return
    with pytest.raises(DefinitionError) as refused:
        check_class(load(text))
    assert str(refused.value).endswith(f"p.yaml:11: watermark.{expected}")


def test_a_definition_is_read_without_importing_the_users_module(load, definition, tmp_path, monkeypatch) -> None:
    """Airflow's DAG processor reads every definition; the module is imported where a run or a check needs it."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "raise SystemExit(3)\n"
    for number, ends in enumerate((text, "raise BaseException('all DAGs')\n", "import os; os.environ['READ'] = '1'\n")):
        (tmp_path / f"ends_{number}.py").write_text(ends)
        pipeline = load(definition((BOUNDED, f"generator: custom\n  class: ends_{number}:Any")))
        assert f"ends_{number}" not in sys.modules
        with pytest.raises(DefinitionError, match=r"watermark\.class"):
            check_class(pipeline)
    os.environ.pop("READ")
