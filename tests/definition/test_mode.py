"""The mode of a definition: which values its runs compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError

SAMPLE = Path("dags/pipelines/departures_hourly.yaml")


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "departures_hourly.yaml"
    file.write_text(SAMPLE.read_text().split("\nlive:")[0] + text)
    return file


def test_a_definition_without_a_mode_computes_both_and_its_hash_does_not_depend_on_it(tmp_path) -> None:
    plain = load_pipeline(written(tmp_path, ""))
    chosen = load_pipeline(written(tmp_path, "\nmode: complete\n"))
    assert (plain.mode, chosen.mode) == (Mode.BOTH, Mode.COMPLETE)
    assert plain.definition_hash == chosen.definition_hash


def test_a_mode_that_is_none_and_one_that_a_live_job_cannot_be_compared_with_are_refused(tmp_path) -> None:
    with pytest.raises(DefinitionError, match="mode"):
        load_pipeline(written(tmp_path, "\nmode: fast\n"))
    live = "\nmode: complete\nlive: {source: {kind: table, table: a.b}}\n"
    with pytest.raises(DefinitionError) as refused:
        load_pipeline(written(tmp_path, live))
    assert "leave out `mode`" in str(refused.value)
