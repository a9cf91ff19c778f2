"""One deployment of the live job at a time: the replay by its own rules, and the rows that are its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from spark_jobs.comparison.emitted import Emitted
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import Deployed
from spark_jobs.errors import EmptyRangeError
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import Mode, Panes


@contextmanager
def replay_of(deployed: Deployed, replay: Replay, partitions: Sequence[int]) -> Iterator[Replay]:
    """The replay that judges a deployment: the run's own, or one by the deployment's rules over the same records.

    The second makes a timeline of its own, over the whole history. `partitions`: those found in the history.
    """
    if not deployed.has_own_rules:
        yield replay
        return
    spec = spec_of(deployed.pipeline, partitions, mode=Mode.BOTH, panes=Panes.LAST)
    with Replay(replay.history, spec) as own:
        yield own


def only_of(deployed: Deployed, emitted: Emitted) -> Emitted:
    """What one of several deployments emitted; rows outside of its time are those of the others, and not counted."""
    return emitted if deployed.name is None else replace(emitted, outside=0)


def no_deployment(pipeline: Pipeline) -> EmptyRangeError:
    """What is raised where no deployment has windows in the range."""
    return EmptyRangeError(
        "no deployment of the live job has windows in this range",
        pipeline.source_of(("live",)) or pipeline.name,
        "Choose another range, or correct `from` and `to` under `live`.",
    )
