"""What the state machines of this folder share: one pipeline on real tables, its story, and so many steps in all."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from pyspark.sql import SparkSession

from tests.conformance.formats import TINY
from tests.sampling import IN_FULL


class Machine(RuleBasedStateMachine):
    """Actors at one pipeline; subclasses have the rules. `taken` counts the steps of all pipelines.

    `is_plain`: Hypothesis begins with the plainest steps, the first rule again and again: they do not count.
    """

    spark: ClassVar[SparkSession]
    folder: ClassVar[Path]
    count: ClassVar[Any]
    taken: ClassVar[int] = 0
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.is_plain = type(self).made == 0
        type(self).made += 1

    def did(self, what: str) -> None:
        """A step."""
        type(self).taken += not self.is_plain
        self.steps.append(what[:300])

    @property
    def story(self) -> str:
        """What has happened, for whoever reads why a test failed."""
        return "\n".join(["", *self.steps])

    def teardown(self) -> None:
        print(self.story)

    @classmethod
    def made_ready(cls, spark: SparkSession, folder: Path) -> None:
        """Give the machine a session in which tiny queries cost little, and a folder."""
        cls.spark, cls.folder, cls.count, cls.taken = spark.newSession(), folder, itertools.count(1), 0
        for name, value in TINY.items():
            cls.spark.conf.set(name, value)

    @classmethod
    def take(cls, steps: int, of_one: int) -> None:
        """Take so many steps in all, of one pipeline no more than `of_one`: Hypothesis draws the number."""
        for number in itertools.count(random.randrange(2**32) if IN_FULL else 0):
            print(f"seed {number}, after {cls.taken} steps")
            cls.made = 0
            chosen = settings(
                max_examples=2,
                stateful_step_count=max(2, min(of_one, steps - cls.taken)),
                deadline=None,
                database=None,
                phases=(Phase.generate,),
                print_blob=False,
                report_multiple_bugs=False,
                suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
            )
            run_state_machine_as_test(seed(number)(cls), settings=chosen)
            if cls.taken >= steps:
                return
