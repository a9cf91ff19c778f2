"""Fields of a definition that neither log nor checkpoint tells, with another value than the definition gives them.

A comparison tries them where the live job's rows contradict the definition (`spark_jobs.comparison.other_values`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import numpy as np

from spark_jobs.eventtime.kafka_streams.task import Emission
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import INITIAL_WATERMARK
from spark_jobs.eventtime.windows import CalendarSessionWindows
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.kafka_streams.rules import KafkaStreamsRules
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import ReplaySpec


@dataclass(frozen=True, slots=True)
class OtherValue:
    """A replay with another value of a field. `field`: its path in the definition; `value`: as it is written there."""

    field: str
    value: str
    spec: ReplaySpec


def other_values(replay: Replay) -> tuple[OtherValue, ...]:
    """The other values that can change the windows of this replay; of each field the likeliest first."""
    spec = replay.spec
    match spec.rules:
        case StructuredStreamingRules() as rules:
            return tuple(_of_query(spec, rules))
        case KafkaStreamsRules() as rules if replay.has_own_timeline:
            return tuple(_of_application(spec, rules))
        case _:
            return ()


def _of_query(spec: ReplaySpec, rules: StructuredStreamingRules) -> Iterator[OtherValue]:
    drops_late = rules.output_mode is not OutputMode.COMPLETE or spec.has_sessions  # Spark rules 18 and 31
    if drops_late and spec.deduplication is None:  # which needs allowMultiple
        batches, allows = _with_other_lateness(rules.batches)
        yield OtherValue("watermark.allow_multiple", str(allows).lower(), _by(spec, replace(rules, batches=batches)))
    if spec.has_sessions:
        merges = not rules.merge_locally
        field = "watermark.merge_sessions_in_local_partition"
        yield OtherValue(field, str(merges).lower(), _by(spec, replace(rules, merge_locally=merges)))
    if isinstance(spec.windows, CalendarSessionWindows) and spec.windows.time_zone.key != "UTC":
        windows = replace(spec.windows, time_zone=ZoneInfo("UTC"))
        yield OtherValue("window.time_zone", "UTC", replace(spec, windows=windows))


def _with_other_lateness(batches: MicroBatches) -> tuple[MicroBatches, bool]:
    """The batches with the other value of `allowMultiple`, and that value (Spark rule 16)."""
    if not np.array_equal(batches.late, batches.watermark):
        return replace(batches, late=batches.watermark), False
    before = np.concatenate(([INITIAL_WATERMARK], batches.watermark[:-1]))
    return replace(batches, late=before), True


def _of_application(spec: ReplaySpec, rules: KafkaStreamsRules) -> Iterator[OtherValue]:
    application = rules.application
    if application.restarts or application.of_all:
        alone = replace(application, restarts={}, of_all=())
        yield OtherValue("watermark.restarts", "[]", _by(spec, replace(rules, application=alone)))
    written = {
        Emission.EACH_UPDATE: "each_update",
        Emission.SUPPRESS: "on_close",
        Emission.ON_WINDOW_CLOSE: "{kind: on_close, strategy: emit}",
    }
    for emission, text in written.items():
        if emission is not application.topology.emission:
            other = replace(application, topology=replace(application.topology, emission=emission))
            yield OtherValue("emission", text, _by(spec, replace(rules, application=other)))


def _by(spec: ReplaySpec, rules: StructuredStreamingRules | KafkaStreamsRules) -> ReplaySpec:
    return replace(spec, rules=rules)
