"""The history of a window: every value that it had, as the command `rewindow revisions` prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs import cli
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.window_history import window_history
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import log_of, pipeline
from tests.runs.small_runs import write


def test_the_as_of_vector_is_an_object_in_json(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    defined = pipeline(tmp_path, "life_in_json", "tumbling, per event")
    records = log_of(3, count=60)
    write(tmp_path / "data", records, "part-0.json")
    reconcile(spark, defined, NoProgress())
    ends = {p: 1 + max(r["o"] for r in records if r["p"] == p) for p in (0, 1)}
    window = PublishedTable(spark, Tables.of(defined).windows).current().where("k = 'a'").head()["window_start"]

    [revision] = window_history(spark, defined, [("k", "a")], int(window.timestamp() * 1000))
    assert revision.as_of == ends

    start = f"{window:%Y-%m-%dT%H:%M:%S}Z"
    command = ["rewindow", "revisions", str(defined.file), "--window", start, "--key", "k=a", "--json"]
    monkeypatch.setattr("sys.argv", command)
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capfd.readouterr()
    assert not ended.value.code, err
    [line] = out.splitlines()
    assert json.loads(line)["as_of"] == {str(p): end for p, end in ends.items()}
