"""A YAML file made to exhaust the reader is refused in a moment, with its place and within little memory."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.definition.alias_bomb import BOMB

LOAD = """
import resource, sys, time
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    load_pipeline(sys.argv[1], {})
except DefinitionError as refusal:
    print(refusal)
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_number_of_five_thousand_digits_is_refused_at_its_line(refusals, definition) -> None:
    for number in ("9" * 5_000, "0x" + "f" * 5_000, "-" + "1" * 5_000):
        (message,) = refusals(definition(("bound: 30 min", f"bound: {number}")))
        assert message.startswith("p.yaml:11: watermark.bound: a number of ")
        assert message.endswith(" characters; write a number of at most 100 characters, or text in quotes")


def test_a_variable_that_holds_such_a_number_is_refused_too(refusals, definition) -> None:
    text = definition(("path: data/*.parquet", "path: data/*.parquet\n  options:\n    mergeSchema: ${DATA_N}"))
    message, *_ = refusals(text, {"DATA_N": "7" * 5_000})
    assert message.startswith("p.yaml:6: history.options.mergeSchema: a number of 5000 characters")


@pytest.mark.parametrize("nested", ["[" * 1_000 + "]" * 1_000, "{a: " * 1_000 + "1" + "}" * 1_000, "[" * 100_000])
def test_deep_nesting_is_refused_at_its_line(refusals, definition, nested: str) -> None:
    assert refusals(definition(("keys: {carrier: key}", f"keys: {nested}"))) == [
        "p.yaml:7: nested more than 40 deep; write the definition with fewer levels"
    ]


def test_an_alias_bomb_is_refused_quickly_and_with_little_memory(tmp_path) -> None:
    assert len(BOMB) < 3_000
    file = tmp_path / "p.yaml"
    file.write_text(BOMB)
    done = subprocess.run([sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, check=True)
    message, cost = done.stdout.splitlines()
    assert message.startswith(f"{file}:")
    assert message.endswith("stands for more than 10000 values; leave out what no definition needs, aliases first")
    seconds, kilobytes = map(float, cost.split())
    assert seconds < 2
    assert kilobytes < 50_000


def test_aliases_that_stand_for_little_are_read(load, definition) -> None:
    text = definition(("n: count(*)", "n: &all count(*)\n  m: *all"))
    assert load(text).aggregates == {"n": "count(*)", "m": "count(*)"}


def test_of_thousands_of_problems_the_first_are_told_and_the_others_counted(refusals, definition) -> None:
    began = time.process_time()
    message = refusals(definition() + "".join(f"unknown_{n}: 1\n" for n in range(5_000)))
    assert time.process_time() - began < 5
    assert len(message) == 21
    assert message[-1] == "p.yaml:36: 4980 more problems; correct these first"


def test_a_file_of_many_problems_of_yaml_itself_is_told_in_short_too(refusals, definition) -> None:
    message = refusals(definition() + "name: again\n" * 5_000)
    assert len(message) == 21
    assert message[-1].endswith(": 4980 more problems; correct these first")


def test_a_name_that_airflow_has_no_room_for_is_refused(refusals, load, definition) -> None:
    assert load(definition(("name: p", "name: " + "p" * 100))).name == "p" * 100
    assert refusals(definition(("name: p", "name: " + "p" * 101))) == [
        "p.yaml:1: name: a name of 101 characters; write at most 100"
    ]
