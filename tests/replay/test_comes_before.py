"""Which records are not looked up: those that come before their window's close wherever that lies."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pyspark.sql import functions as F

from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.timeline import CloseArrays
from spark_jobs.replay.windows import INDEX

STEP = 10


def closes_of(arrivals: list[int]) -> CloseArrays:
    return CloseArrays(RegularGrid(STEP), 1, np.array([[a, 1, 5] if a != NEVER else [NEVER] * 3 for a in arrivals]))


def plain_answer(closes: CloseArrays, record: tuple[int, int, int, int, int]) -> bool:
    partition, offset, arrival, _, index = record
    return (arrival, partition, offset) <= tuple(closes.positions[index].tolist())


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_as_if_each_record_were_looked_up(spark, seed: int) -> None:
    draw = random.Random(seed)
    least = draw.choice((-30, 0, 3, 40))
    delays = [least, *(least + draw.choice((0, 1, 2, 25)) for _ in range(4))]
    closes = closes_of([STEP * (i + 1) + delay for i, delay in enumerate(delays)] + [NEVER])
    assert closes.least_delay == least
    records = [
        (partition, offset, arrival, time, index)
        for index in range(len(closes.positions))
        for time in range(STEP * index, STEP * (index + 1))
        for arrival in range(time + least - 3, time + least + STEP + 4)
        for partition, offset in ((0, 9), (1, 4), (1, 5), (1, 6), (2, 0))
    ]
    columns = [PARTITION, OFFSET, ARRIVAL, EVENT_TIME, INDEX]
    types = ("INT", "BIGINT", "BIGINT", "BIGINT", "INT")
    schema = ", ".join(f"{column} {kind}" for column, kind in zip(columns, types, strict=True))
    frame = spark.createDataFrame(records, schema)
    found = frame.select(*columns, FLINK.comes_before(closes, F.col(INDEX), frame).alias("before")).collect()
    assert {tuple(row[:5]): row.before for row in found} == {r: plain_answer(closes, r) for r in records}
    looked_up = frame.where(F.col(ARRIVAL) - least >= F.col(EVENT_TIME)).count()
    assert 0 < looked_up < len(records)


@pytest.mark.parametrize(
    ("arrivals", "first"),
    [([], 1), ([NEVER, NEVER], 1), ([-(2**63), 5], 1), ([5, 6], 2**61), ([-(2**63), 6], -(2**61)), ([NEVER], 2**61)],
)
def test_there_is_no_bound_where_none_is_of_use(arrivals: list[int], first: int) -> None:
    positions = np.array([[arrival, 0, 0] for arrival in arrivals], dtype=np.int64).reshape(-1, 3)
    assert CloseArrays(RegularGrid(1), first, positions).least_delay is None
