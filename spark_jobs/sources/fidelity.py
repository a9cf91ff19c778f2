"""How exactly a history allows a replay to repeat what the live job decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engine import Engine
from spark_jobs.pins import PinnedTopic

Level = Literal["recorded", "log_order", "approximate", "complete_only"]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The level, and why it is not higher.

    `recorded`: the live job has written down what it decided by. `log_order`: partition, offset and the broker's append
    time are known, or the order alone decides. `approximate`: the producer's time is known instead, so only the order
    within a partition is certain. `complete_only`: the order is not known, and faithful results are refused.
    """

    level: Level
    reasons: tuple[str, ...]


def fidelity(pipeline: Pipeline, topic: PinnedTopic | None = None) -> Fidelity:
    """The fidelity of a history, from `history.position`, the topic's timestamps, and the gaps that were accepted."""
    position = pipeline.history.position
    if pipeline.engine is Engine.SPARK:
        return Fidelity("recorded", () if topic is None else tuple(topic.notes))
    missing = position.missing
    if missing:
        return Fidelity(
            "complete_only", tuple(f"the history has no {name} (history.position.{name})" for name in missing)
        )
    reasons = []
    if position.going_back == "running_maximum":
        reasons.append("an arrival that goes back counts as the latest arrival before it (going_back: running_maximum)")
    if topic is not None:
        reasons += topic.notes
    if pipeline.engine.decides_by_order_alone and not getattr(pipeline.watermark, "restarts", ()):
        return Fidelity("log_order", tuple(reasons))
    if position.arrival_kind == "producer_time":
        reasons.insert(0, "the arrival is the producer's time, not the broker's (arrival_kind: producer_time)")
        return Fidelity("approximate", tuple(reasons))
    if topic is not None and topic.arrival_kind == "producer_time":
        reasons.insert(0, f"topic {topic.topic} has the producer's time (message.timestamp.type is CreateTime)")
        return Fidelity("approximate", tuple(reasons))
    return Fidelity("log_order", tuple(reasons))
