"""A definition drafted from a checkpoint: what it tells, what is left, and that `check` finds what is left."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.project.spark_import import draft_of

KEYS = {
    "type": "struct",
    "fields": [
        {"name": "shop", "type": "string", "nullable": True, "metadata": {}},
        {
            "name": "window",
            "type": {"type": "struct", "fields": []},
            "nullable": False,
            "metadata": {"spark.timeWindow": True, "spark.watermarkDelayMs": 600_000},
        },
    ],
}
VALUES = {"type": "struct", "fields": [{"name": "count", "type": "long"}, {"name": "sum", "type": "double"}]}


def checkpoint(folder: Path, operator: str = "stateStoreSave", offset: str = '{"shop.orders":{"0":5}}') -> Path:
    state = folder / "state" / "0"
    for path in (folder / "offsets", folder / "commits", state / "_metadata", state / "0" / "_metadata"):
        path.mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"c0ffee"}')
    (folder / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{offset}')
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (state / "_metadata" / "metadata").write_text(f'v1\n{{"operatorInfo":{{"operatorName":"{operator}"}}}}')
    parts = [json.dumps(schema, separators=(",", ":")).encode() for schema in (KEYS, VALUES)]
    schema = b"\x00\x02v2\x00\x00\x00\x01\x01d" + parts[0] + b"\x00\x00\x00\x01\x00\x92" + parts[1]
    (state / "0" / "_metadata" / "schema").write_bytes(schema)
    return folder


def test_topic_keys_window_and_delay_come_from_the_checkpoint(tmp_path: Path) -> None:
    draft = draft_of(checkpoint(tmp_path))
    assert draft.name == "shop_orders"
    assert 'topic: "shop.orders"' in draft.text
    assert "keys: {shop: shop}  # in the state: shop string" in draft.text
    assert "delay: 10 min" in draft.text
    assert "the state has count, sum" in draft.text


def test_a_draft_that_is_filled_in_is_a_definition(tmp_path: Path) -> None:
    text = draft_of(checkpoint(tmp_path / "checkpoint")).text
    answers = {
        "servers: CHECK": "servers: kafka:9092",
        'schema: "CHECK"': 'schema: "shop STRING, at TIMESTAMP"',
        "expression: CHECK": "expression: at",
        "size: CHECK": "size: 1 h",
        "output_mode: CHECK": "output_mode: append",
        "n: CHECK": "n: count(*)",
    }
    path = tmp_path / "shop_orders.yaml"
    path.write_text(text)
    with pytest.raises(DefinitionError, match=r"window\.size: still says `CHECK`; fill in the live job's own"):
        load_pipeline(path)
    for asked, answer in answers.items():
        assert asked in text
        left = text.replace(asked, "\0")
        for other, given in answers.items():
            left = left.replace(other, given)
        path.write_text(left.replace("\0", asked))
        with pytest.raises(DefinitionError, match="still says `CHECK`"):
            load_pipeline(path)
        text = text.replace(asked, answer)
    path.write_text(text)
    assert load_pipeline(path).engine == "spark"


@pytest.mark.parametrize(
    ("operator", "section"),
    [
        ("dedupeWithinWatermark", 'deduplicate: {by: ["shop"], kind: drop_duplicates_within_watermark}'),
        ("dedupe", 'deduplicate: {by: ["shop"], kind: drop_duplicates, event_time: true}'),
    ],
)
def test_a_deduplication_is_drafted_with_its_columns(tmp_path: Path, operator: str, section: str) -> None:
    draft = draft_of(checkpoint(tmp_path, operator))
    assert section in draft.text
    assert any("deduplicate.by" in remark for remark in draft.remarks)


def test_what_cannot_be_in_a_definition_is_listed(tmp_path: Path) -> None:
    remarks = draft_of(checkpoint(tmp_path / "b", "symmetricHashJoin")).remarks
    assert any("a join of streams: it cannot be replayed" in remark for remark in remarks)


def test_a_query_on_files_is_drafted_with_the_folder_of_its_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", offset='{"logOffset":0}')
    (folder / "sources" / "0").mkdir(parents=True)
    files = [{"path": f"file:///srv/landing%20zone/day={day}/a.json", "timestamp": 1, "batchId": 0} for day in (1, 2)]
    (folder / "sources" / "0" / "0").write_text("\n".join(["v1", *map(json.dumps, files)]))
    draft = draft_of(folder)
    assert draft.name == "landing_zone"
    assert 'history: {kind: files, path: "/srv/landing zone", format: json}' in draft.text
    text = draft.text.replace('schema: "CHECK"', 'schema: "shop STRING, at TIMESTAMP"').replace(
        "size: CHECK", "size: 1 h"
    )
    text = text.replace("expression: CHECK", "expression: at").replace("output_mode: CHECK", "output_mode: append")
    path = tmp_path / "landing_zone.yaml"
    path.write_text(text.replace("n: CHECK", "n: count(*)"))
    assert load_pipeline(path).has_files_of_query


def test_a_folder_without_a_checkpoint_and_a_query_without_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no checkpoint"):
        draft_of(tmp_path)
    with pytest.raises(DefinitionError, match="no source of the query reads a topic, or files"):
        draft_of(checkpoint(tmp_path / "c", offset='{"logOffset":3}'))


def test_the_command_writes_the_draft_and_lists_what_is_left(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = checkpoint(tmp_path / "checkpoint")
    result = CliRunner().invoke(app, ["import", "spark", str(folder), "--name", "orders_hourly"])
    assert result.exit_code == 0, result.output
    assert "event_time: the column of `withWatermark`" in result.output
    assert "filter: a WHERE of the query" in result.output and "live: where the rows" in result.output
    for file in ("dags/pipelines/orders_hourly.yaml", "dags/rewindow_pipelines.py", "dags/pipeline.schema.json",
                 "expectations/orders_hourly.json", "expectations/windows.json"):  # fmt: skip
        assert (tmp_path / file).exists() and file in result.output
    own = json.loads((tmp_path / "expectations/orders_hourly.json").read_text())
    assert own["meta"]["leave_out"] == ["windows/keys-not-null"], "the query gives windows of null keys too"


ODD_NAMES = ["a\nlive: {source: {kind: files}}\nb", "a: b", "a # b", "a}, x: {y", "\u2028x: 1", "\x85x: 1", "${HOME}",
             "a`b", "\U0001f600", "\x00", "'", '"', "*", "&a", "- a", "\u202egnp"]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_name_in_a_checkpoint_adds_to_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    keys = {"type": "struct", "fields": [{"name": name, "type": "string", "metadata": {}}, KEYS["fields"][-1]]}
    monkeypatch.setitem(globals(), "KEYS", keys)
    monkeypatch.setitem(VALUES["fields"][0], "name", name)
    offset = json.dumps({name: {"0": 5}})
    plain = YAML(typ="safe").load(draft_of(checkpoint(tmp_path / "plain"), "p").text)
    draft = YAML(typ="safe").load(draft_of(checkpoint(tmp_path / "odd", offset=offset), "p").text)
    assert draft.keys() == plain.keys()
    escaped = name.replace("${", "$${")  # which a definition reads as `${`
    assert draft["history"]["topic"] == escaped
    ((column, expression),) = draft["keys"].items()
    assert re.fullmatch(r"[A-Za-z]\w*", column, re.ASCII)
    assert expression == "`" + escaped.replace("`", "``") + "`"


def test_names_with_spaces_and_dots_are_quoted_and_become_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [{"name": name, "type": "string", "metadata": {}} for name in ("shop id", "shop.id", "1st")]
    monkeypatch.setitem(globals(), "KEYS", {"type": "struct", "fields": [*odd, KEYS["fields"][-1]]})
    draft = YAML(typ="safe").load(draft_of(checkpoint(tmp_path / "c"), "p").text)
    assert draft["keys"] == {"shop_id": "`shop id`", "shop_id_2": "`shop.id`", "key_1st": "`1st`"}
    operator = draft_of(checkpoint(tmp_path / "d", operator="dedupe"), "p").text
    assert YAML(typ="safe").load(operator)["deduplicate"]["by"] == ["`shop id`", "`shop.id`", "`1st`"]
