"""The definition's hash changes with what can change a result, and with nothing else."""

from __future__ import annotations

import hashlib
import json
import pickle

import pytest


@pytest.mark.parametrize(
    "replacement",
    [
        ("size: 1 h", "size: 60 min"),
        ("size: 1 h", "size: PT1H"),
        ("type: tumbling\n  size: 1 h", "size: 1 h\n  type: tumbling"),
        ("bound: 30 min", "bound: 30 min\n  emission: per_event\n  interval: 0"),
        ("n: count(*)\n", "n: count(*)   # a comment\n"),
        ("keys: {carrier: key}", "keys:\n  carrier: key\nallowed_lateness: 0 s"),
        ("name: p", "name: q\ndescription: another\noutput: {namespace: other}"),
        ("name: p", "name: p\nowner: team\ntags: [a]\nlinks: {Runbook: 'https://w/x'}"),
        ("data/*.parquet", "[data/*.parquet]"),
        ("keys:", "quarantine: {threshold: 0.01}\nkeys:"),
    ],
)
def test_another_spelling_has_the_same_hash(load, definition, replacement) -> None:
    assert load(definition(replacement)).definition_hash == load(definition()).definition_hash


@pytest.mark.parametrize(
    "replacement",
    [
        ("size: 1 h", "size: 61 min"),
        ("bound: 30 min", "bound: 31 min"),
        ("bound: 30 min", "bound: 30 min\n  partitions: 3"),
        ("bound: 30 min", "bound: 30 min\n  flink: '1.20'"),
        ("n: count(*)", "n: count(1)"),
        ("n: count(*)", "m: count(*)"),
        ("carrier: key", "airline: key"),
        ("data/*.parquet", "other/*.parquet"),
        ("offset: offset", "offset: o"),
        ("keys:", "filter: {after_watermark: x > 0}\nkeys:"),
    ],
)
def test_another_result_has_another_hash(load, definition, replacement) -> None:
    assert load(definition(replacement)).definition_hash != load(definition()).definition_hash


def test_where_the_history_lies_on_a_machine_does_not_change_the_hash(load, definition) -> None:
    text = definition(("data/*.parquet", "${DATA}/x.parquet"))
    one, other = load(text, {"DATA": "/one"}), load(text, {"DATA": "/other"})
    assert one.history.path != other.history.path
    assert one.definition_hash == other.definition_hash
    assert json.loads(one.to_canonical_json())["history"]["path"] == ["${DATA}/x.parquet"]


def test_the_hash_is_that_of_the_canonical_json(load, definition) -> None:
    pipeline = load(definition())
    text = pipeline.to_canonical_json()
    assert pipeline.definition_hash == hashlib.sha256(text.encode()).hexdigest()
    assert json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")) == text


def test_a_pipeline_survives_pickling_with_its_lines_and_hash(load, definition) -> None:
    pipeline = load(definition(("data/*.parquet", "${DATA_D:-d}/x.parquet")))
    copy = pickle.loads(pickle.dumps(pipeline))
    assert copy == pipeline
    assert copy.definition_hash == pipeline.definition_hash
    assert copy.source_of(("aggregates", "n")) == pipeline.source_of(("aggregates", "n"))


CUSTOM = "generator: custom\n  class: {}"


def test_the_code_of_a_custom_generator_decides_too_and_is_not_run(load, definition, tmp_path, monkeypatch) -> None:
    """The class may be imported from elsewhere, and have base classes there: each of these modules counts."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_rules"
    package.mkdir()
    files = {
        "__init__.py": "from own_rules.late import Late\nraise SystemExit('imported')\n",
        "late.py": "from . import base\nimport other_rules\n\n\nclass Late(base.Base):\n    bound = 1\n",
        "base.py": "from .root import *\n\n\nclass Base(Root):\n    pass\n",
        "root.py": "class Root:\n    wait = 1\n",
        "unrelated.py": "wait = 1\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)

    def hash_of(reference: str) -> str:
        return load(
            definition(("generator: bounded_out_of_orderness\n  bound: 30 min", CUSTOM.format(reference)))
        ).definition_hash

    for reference in ("own_rules:Late", "own_rules.late:Late"):
        hashes = [hash_of(reference)]
        for name in ("late.py", "base.py", "root.py"):
            (package / name).write_text(files[name] + "# another rule\n")
            hashes.append(hash_of(reference))
        assert len(set(hashes)) == 4
        (package / "unrelated.py").write_text("wait = 2\n")
        for name, text in files.items():
            (package / name).write_text(text.replace("\n", "\r\n"))
        assert hash_of(reference) == hashes[0], "line ends say nothing"
        for name, text in files.items():
            (package / name).write_text(text)
    assert hash_of("own_rules:Late") != hash_of("own_rules.late:Late"), "the name is in it"
    (package / "late.py").write_text("class Late(:\n")
    assert hash_of("own_rules.late:Late") not in hashes
    assert hash_of("of_nobody:Late") == hash_of("of_nobody:Late")
