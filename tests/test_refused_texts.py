"""Odd texts from a form, a command line or a file: refused in a short sentence that can be printed, before Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spark_jobs.definition.instants import InstantError, parse_instant
from spark_jobs.definition.names import MAX_NAMESPACE
from spark_jobs.definition.output import Output
from spark_jobs.definition.position import end_offsets
from spark_jobs.errors import DefinitionError, RewindowError
from spark_jobs.eventtime.durations import DurationError, parse_duration
from spark_jobs.operations.periods import retention, retention_or_forever
from spark_jobs.orchestration.form import read_form, read_maintain_form
from spark_jobs.runs.planning.requesting import requested_of


@pytest.mark.parametrize(
    "text", ["0=" + "9" * 30, f"0={2**63}", f"{2**31}=5", "99999999999=5", "-1=5", "0=-5", "0=5=6", "0=x", "0=\ud800"]
)
def test_end_offsets_beyond_their_bits_are_refused(text: str) -> None:
    for read in (lambda given: requested_of({"as_of": given}), lambda given: read_form({"as_of": given})):
        with pytest.raises(DefinitionError, match=r"is not a list of end offsets") as refused:
            read(text)
        str(refused.value).encode()


@pytest.mark.parametrize("field", ["from", "to", "until", "as_of", "mode", "panes", "dry_run", "publish"])
def test_an_empty_text_is_left_out_in_the_form_and_refused_on_the_command_line(field: str) -> None:
    with pytest.raises(DefinitionError, match=f"--{field.replace('_', '-')}"):
        requested_of({field: ""})
    if field in ("from", "to", "as_of"):
        assert read_form({field: " "}).given() == read_form({}).given()


def test_the_largest_numbers_are_read() -> None:
    assert end_offsets(f"{2**31 - 1}={2**63 - 1},0=0") == {2**31 - 1: 2**63 - 1, 0: 0}


@given(
    st.sampled_from(("from", "to", "as_of", "mode", "chunks", "publish", "dry_run", "\ud800")),
    st.text() | st.just("\ud800"),
)
def test_a_refusal_of_the_form_can_be_printed_and_is_short(field: str, text: str) -> None:
    try:
        read_form({field: text})
    except RewindowError as refused:
        assert len(str(refused).encode()) < 1_000


@pytest.mark.parametrize("text", ["forever", "-7 d", "40000 d", "99999999999 d", "x" * 60_000, "1 " + "y" * 60_000])
def test_a_time_to_keep_is_a_length_that_a_clock_can_go_back(text: str) -> None:
    with pytest.raises(DefinitionError, match="--keep-snapshots") as refused:
        retention(text, "--keep-snapshots")
    assert "C int" not in str(refused.value) and len(str(refused.value)) < 400
    with pytest.raises(DefinitionError):
        read_maintain_form({"keep_snapshots": text}, "p.yaml", archives=False)
    assert retention_or_forever("forever", "x") is None


@pytest.mark.parametrize("text", ["5" * 60_000, "x" * 60_000, "1 d " * 15_000, "P" + "9" * 60_000, "1 " + "m" * 60_000])
def test_a_long_text_is_quoted_in_part(text: str) -> None:
    for read, problem in ((parse_duration, DurationError), (parse_instant, InstantError)):
        with pytest.raises(problem) as refused:
            read(text)
        assert len(str(refused.value)) < 500


def test_a_namespace_has_an_end() -> None:
    assert Output(namespace="a.b").namespace == "a.b"
    for text in (".".join("a" * 100_000), "a" * (MAX_NAMESPACE + 1)):
        with pytest.raises(ValidationError, match="characters"):
            Output(namespace=text)
