"""Fitted cuts: what was cut is found, and what no cut explains is not."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.comparison.cut_search import CutKind, Doubt, Fit, fit

PARTITIONS = 3


@st.composite
def logs(draw) -> Doubt:
    """Undecided records of some keys, in position order; nothing wanted yet."""
    keys = draw(st.integers(1, 5))
    records = draw(st.lists(st.tuples(st.integers(0, keys - 1), st.integers(0, 2), st.integers(-3, 3)), max_size=12))
    offsets, next_offset = [], [0] * PARTITIONS
    for _, partition, _ in records:
        offsets.append(next_offset[partition])
        next_offset[partition] += 1
    columns = np.array(records, np.int64).reshape(-1, 3)
    adds = np.stack([np.ones(len(records), np.int64), columns[:, 2]], axis=1)
    nominal = draw(st.integers(0, len(records)))
    return Doubt(
        np.zeros((keys, 2), np.int64), columns[:, 0], columns[:, 1], np.array(offsets, np.int64), adds, nominal
    )


def taking(doubt: Doubt, taken: np.ndarray) -> np.ndarray:
    """What the keys' rows hold when these records were in time."""
    sums = np.zeros_like(doubt.wanted)
    np.add.at(sums, doubt.key[taken], doubt.adds[taken])
    return sums


def under(doubt: Doubt, found: Fit) -> np.ndarray:
    """What the keys' rows hold under a fit."""
    last = np.array([found.cuts.get(p, -1) for p in range(PARTITIONS)])
    return taking(doubt, doubt.offset <= last[doubt.partition])


def wanting(doubt: Doubt, wanted: np.ndarray) -> Doubt:
    return Doubt(wanted, doubt.key, doubt.partition, doubt.offset, doubt.adds, doubt.nominal)


@given(logs(), st.data())
def test_rows_cut_at_one_position_are_explained_by_one_cut(doubt: Doubt, data) -> None:
    cut = data.draw(st.integers(0, len(doubt.key)))
    wanted = wanting(doubt, taking(doubt, np.arange(len(doubt.key)) < cut))
    found = fit(wanted, by_partition=False)
    assert (found.kind, found.left_out, found.keys) == (CutKind.ONE_CUT, 0, len(doubt.wanted))
    assert (under(wanted, found) == wanted.wanted).all()


@given(logs(), st.data())
def test_rows_cut_by_partition_are_explained_where_partitions_may_be_cut_on_their_own(doubt: Doubt, data) -> None:
    last = np.array([data.draw(st.integers(-1, 12)) for _ in range(PARTITIONS)])
    wanted = wanting(doubt, taking(doubt, doubt.offset <= last[doubt.partition]))
    found = fit(wanted, by_partition=True)
    assert found.kind in (CutKind.ONE_CUT, CutKind.PARTITION_CUT)
    assert found.left_out == 0
    assert (under(wanted, found) == wanted.wanted).all()


@given(logs(), st.data(), st.booleans())
@settings(max_examples=200)
def test_a_fit_explains_all_keys_but_those_it_says_it_leaves_out(doubt: Doubt, data, by_partition: bool) -> None:
    size = doubt.wanted.size
    sums = np.array(data.draw(st.lists(st.integers(-2, 4), min_size=size, max_size=size))).reshape(-1, 2)
    wanted = wanting(doubt, sums)
    found = fit(wanted, by_partition=by_partition)
    if found.kind:
        explained = int((under(wanted, found) == sums).all(axis=1).sum())
        assert explained == found.keys == len(sums) - found.left_out
    else:
        assert not (under(wanted, found) == sums).all() or not found.cuts


def test_with_many_keys_one_wrong_count_is_left_out_and_the_others_are_explained() -> None:
    #   key      0  1  2  3  4  5  6  7   each with one undecided record; the job took the first five
    doubt = Doubt(
        np.array([[1], [1], [1], [7], [1], [0], [0], [0]]), np.arange(8), np.zeros(8, np.int64), np.arange(8),
        np.ones((8, 1), np.int64), nominal=3,
    )  # fmt: skip
    assert fit(doubt, by_partition=False) == Fit(CutKind.ONE_CUT, {0: 4}, keys=7, left_out=1)


def test_keys_that_no_cut_explains_say_nothing_about_the_cut_of_the_others() -> None:
    doubt = Doubt(
        np.array([[9], [9], [1], [0]]), np.arange(4), np.zeros(4, np.int64), np.arange(4), np.ones((4, 1), np.int64), 0
    )
    assert fit(doubt, by_partition=False) == Fit(CutKind.ONE_CUT, {0: 2}, keys=2, left_out=2)
    assert fit(doubt, by_partition=True) == Fit(CutKind.PARTITION_CUT, {0: 2}, keys=2, left_out=2)


def test_two_keys_that_contradict_each_other_are_not_explained() -> None:
    #   the first record is said to be late, and the one after it in time
    doubt = Doubt(
        np.array([[0], [1]]), np.array([0, 1]), np.zeros(2, np.int64), np.arange(2), np.ones((2, 1), np.int64), 0
    )
    assert fit(doubt, by_partition=True).kind is CutKind.NONE


def test_a_search_that_would_take_too_long_says_so() -> None:
    records = 40_000
    partition = np.arange(records) % 4
    wanted = np.array([[1]])  # no cut of a log of threes sums up to one
    doubt = Doubt(
        wanted, np.zeros(records, np.int64), partition, np.arange(records) // 4, np.full((records, 1), 3), records
    )
    assert fit(doubt, by_partition=True) == Fit(CutKind.NONE, {}, keys=0, left_out=1, searched=False)
