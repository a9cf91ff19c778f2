"""Takes random walks, one after another, and shrinks those that go wrong."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tests.walk.drawn import drawn, fits
from tests.walk.plan import Kind, Shape
from tests.walk.shrunk import shortest
from tests.walk.walker import Fault, Walker

KINDS = (Kind.ICEBERG, Kind.FILES)
SHAPES = (Shape.TUMBLING, Shape.LOOKUP, Shape.TUMBLING, Shape.SESSION, Shape.SLIDING, Shape.DEDUPLICATE, Shape.COMPLETE)


def take_walks(
    spark: SparkSession,
    folder: Path,
    steps: int,
    seed: int,
    *,
    kinds: Sequence[Kind] | None = None,
    shapes: Sequence[Shape] | None = None,
    of_one: int = 16,
    tries: int = 0,
    stops: bool = False,
    say: Callable[[str], None] = print,
) -> list[Fault]:
    """The faults of as many walks as have `steps` steps together. `stops`: at the first fault."""
    walker, faults, taken = Walker(spark, folder), list[Fault](), 0
    chosen = zip(
        itertools.count(seed), itertools.cycle(kinds or KINDS), itertools.cycle(shapes or SHAPES), strict=False
    )
    for number, kind, drawn_shape in chosen:
        shape = drawn_shape if fits(kind, drawn_shape) else Shape.TUMBLING
        if taken >= steps or (faults and stops):
            return faults
        walk, began = drawn(number, kind, shape, min(of_one, steps - taken)), time.monotonic()
        taken += len(walk.steps)
        fault = walker.first_fault(walk)
        seconds = time.monotonic() - began
        say(f"seed {number}, {kind.value}, {shape.value}: {len(walk.steps)} steps, {walk.runs} runs, {seconds:.0f} s")
        if fault is not None:
            say(fault.shown())
            fault = shortest(fault, walker.first_fault, tries)
            say(f"the shortest that was found:\n{fault.shown()}")
            faults.append(fault)
    raise AssertionError("seeds never end")
