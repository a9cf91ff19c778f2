"""A sample of `make fuzz`; and that it finds planted faults: a traceback, a hang, memory, a lost record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import DefinitionError
from spark_jobs.sources.records import decode
from tests.fuzz import batches, emitted, payloads
from tests.fuzz.batches import BatchKind
from tests.fuzz.kinds import kinds_on_spark, kinds_without_spark
from tests.fuzz.limits import Fault, Limit, check_refusal, try_input
from tests.fuzz.search import Kind
from tests.sampling import sample

PLAIN, ON_SPARK = kinds_without_spark(), kinds_on_spark()
FEW = sample(150, 2_000)
RECORDS = sample(1_500, 5_000)
SEED = 11


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_a_sample_has_no_fault(kind: Kind) -> None:
    tally = kind.search(SEED, FEW, 0)
    assert tally.finding is None, str(tally.finding)
    assert tally.inputs >= FEW


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind.name == "payload-csv" else pytest.mark.long) for kind in ON_SPARK],
    ids=lambda kind: kind.name,
)
def test_a_sample_of_records_has_no_fault(spark: SparkSession, kind: BatchKind) -> None:
    tally = kind.search(spark, SEED, RECORDS, 0, RECORDS)
    assert tally.finding is None, str(tally.finding)
    assert tally.inputs == RECORDS


FOUND = {
    "emitted-json": b'{"s": 9223372036854775807, "op": "d"}',
    "emitted-csv": b"UA,-9223372036854775808,1,c,",
}
"""Records that have ended a job."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_has_an_outcome(spark: SparkSession, name: str) -> None:
    kind = next(kind for kind in ON_SPARK if kind.name == name)
    assert kind.outcomes(spark, [FOUND[name]]) == {0: ["cannot be used: no readable window bounds"]}


def _planted(kind: Kind, fault: Callable[[Any], object], limit: Limit | None = None) -> Kind:
    """The kind, with a fault that only inputs have that are neither refused nor as they were."""

    def read(value: Any) -> object:
        kind.read(value)
        return fault(value)

    return Kind(kind.name, kind.inputs, read, limit or kind.limit, kind.shown, kind.prepare)


def _raise(_: Any) -> None:
    raise KeyError("planted")


def _loop(_: Any) -> None:
    while True:
        pass


def _fill(_: Any) -> None:
    bytearray(1 << 33)


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_a_planted_traceback_is_found_in_each_kind_and_found_again_by_its_seed(kind: Kind) -> None:
    planted = _planted(kind, _raise)
    finding = planted.search(SEED, 100, 0).finding
    assert finding is not None and "a traceback: KeyError" in finding.problem
    again = planted.search(finding.seed, 100, 0).finding
    assert again == finding
    assert f"KIND={kind.name} SEED={finding.seed}" in str(finding)


@pytest.mark.parametrize(("fault", "words"), [(_loop, "a hang"), (_fill, "memory")])
def test_a_loop_and_an_input_that_takes_memory_are_found(fault: Callable[[Any], object], words: str) -> None:
    kind = next(kind for kind in PLAIN if kind.name == "forms")
    finding = _planted(kind, fault, Limit(seconds=0.2, megabytes=256)).search(SEED, 50, 0).finding
    assert finding is not None and words in finding.problem


def test_a_wait_without_an_end_is_found() -> None:
    with pytest.raises(Fault, match="a hang"):
        try_input(lambda: time.sleep(30), Limit(seconds=0.05))


def test_what_is_found_is_made_small() -> None:
    kind = next(kind for kind in PLAIN if kind.name == "forms")

    def read(form: tuple[str, Any]) -> None:
        if isinstance(form[1], dict) and form[1].get("chunks") == 0:
            raise KeyError("planted")

    finding = Kind(kind.name, kind.inputs, read, shown=kind.shown).search(SEED, 5_000, 0).finding
    assert finding is not None and finding.shown in (
        "the form backfill with {'chunks': 0}",
        "the form backfill with {'chunks': False}",
    )


@pytest.mark.parametrize(
    "refused", [DefinitionError(" ", "p.yaml"), DefinitionError("wrong"), DefinitionError("x" * 30_000, "y")]
)
def test_a_refusal_needs_words_a_place_and_an_end(refused: DefinitionError) -> None:
    with pytest.raises(Fault):
        check_refusal(refused)


# Records on Spark. The faults are planted in the product's own decoder.


@pytest.fixture(scope="module")
def csv() -> BatchKind:
    return next(kind for kind in payloads.kinds() if kind.name == "payload-csv")


@pytest.fixture
def few_tries(monkeypatch) -> None:
    """A finding is not made as small as it could be: each try is a Spark job."""
    monkeypatch.setattr(batches, "_TRIES", 8)


def test_a_decoder_that_fails_is_found_with_its_record(
    spark: SparkSession, csv: BatchKind, few_tries, monkeypatch
) -> None:
    real = decode._from_csv

    def failing(text, schema, options):
        return F.when(F.contains(text, F.lit("null")), F.raise_error(F.lit("planted"))).otherwise(
            real(text, schema, options)
        )

    monkeypatch.setattr(decode, "_from_csv", failing)
    finding = csv.search(spark, SEED, 200, 0, 200).finding
    assert finding is not None and "a traceback" in finding.problem and "planted" in finding.problem


def test_a_decoder_that_drops_a_neighbour_is_found(spark: SparkSession, csv: BatchKind, few_tries, monkeypatch) -> None:
    real = payloads.canonical

    def dropping(opened, pipeline):
        offsets = [
            row[0] for row in opened.frame.where("contains(cast(value as string), 'null')").select("offset").collect()
        ]
        return real(opened, pipeline).where(~F.col("offset").isin([offset + 1 for offset in offsets]))

    monkeypatch.setattr(payloads, "canonical", dropping)
    finding = csv.search(spark, SEED, 200, 0, 200).finding
    assert finding is not None and ("lost" in finding.problem or "beside" in finding.problem)


@pytest.mark.long
@pytest.mark.parametrize("kind", ON_SPARK, ids=lambda kind: kind.name)
def test_a_loop_is_found_in_each_kind_of_record(spark: SparkSession, kind: BatchKind, monkeypatch) -> None:
    def looping(*_: Any) -> None:
        while True:
            pass

    with monkeypatch.context() as patch:
        patch.setattr(payloads, "canonical", looping)
        patch.setattr(emitted.live_rows, "_canonical", looping)
        with pytest.raises(Fault, match="a hang"):
            try_input(lambda: kind.outcomes(spark, kind.samples), Limit(seconds=1))
