"""Makes `project.tar.gz` with the code of an earlier version. README.md beside it says how to call it.

Everything is done in one process, through the command line and, for runs in stages, through the entry of the Spark
applications that Airflow submits.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import shutil
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PROJECT = Path("/tmp/rewindow-earlier-version")
"""Iceberg's metadata and the runs' documents hold absolute paths, so the project is always unpacked here."""
PACKED = Path(__file__).with_name("project.tar.gz")

T0 = 1_600_000_020_000
"""The first record's arrival and event time, epoch milliseconds, on a minute."""
SPACING_MS = 3_000
LATE = {1: 100_000, 2: 150_000}
"""By file: how far (milliseconds) one of its records lies behind its arrival: so it changes an older window."""
RECORDS_PER_FILE = 40

DEFINITION = """\
name: {name}
description: "{description}"
history:
  kind: files
  path: {project}/data/{name}/*.{format}
  format: {format}
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
{value}keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{generator: bounded_out_of_orderness, bound: 10 s, partitions: [0, 1]}}
window: {{type: tumbling, size: 1 min}}
allowed_lateness: 30 s
aggregates: {{n: count(*), total: {total}}}
end_of_input: {end}
{publish}output: {{namespace: earlier}}
"""
JSON_VALUE = 'value: {schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}\n'


def record(number: int, file: int) -> dict[str, Any]:
    """Record `number` of the log: partitions in turn; in each later file the sixth record is behind the watermark."""
    arrival = T0 + number * SPACING_MS
    behind = LATE.get(file, 0) if number % RECORDS_PER_FILE == 5 else 0
    return {
        "p": number % 2,
        "o": number // 2,
        "a": arrival,
        "k": "ab"[number % 3 == 0],
        "t": arrival - behind,
        "v": number,
    }


def write_file(folder: Path, file: int, kind: str) -> None:
    """File `file` of a pipeline's input, in the format `kind` (json or parquet)."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [record(number, file) for number in range(file * RECORDS_PER_FILE, (file + 1) * RECORDS_PER_FILE)]
    path = folder / f"part-{file}.{kind}"
    if kind == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)


def define(
    name: str, description: str, *, kind: str = "json", end: str = "flush", total: str = "sum(v)", publish: str = ""
) -> None:
    """Write a pipeline's definition and the first file of its input."""
    text = DEFINITION.format(
        name=name,
        description=description,
        project=PROJECT,
        format=kind,
        value=JSON_VALUE if kind == "json" else "",
        end=end,
        total=total,
        publish=f"publish: {publish}\n" if publish else "",
    )
    (PROJECT / "pipelines" / f"{name}.yaml").write_text(text)
    write_file(PROJECT / "data" / name, 0, kind)


def definition(name: str) -> str:
    return str(PROJECT / "pipelines" / f"{name}.yaml")


def rewindow(*arguments: str, code: int = 0) -> None:
    """Call the command line in this process; it must end with exit code `code`."""
    cli = importlib.import_module("spark_jobs.cli")
    sys.argv = ["rewindow", *arguments]
    print("$", *sys.argv, flush=True)
    try:
        cli.main()
        left = 0
    except SystemExit as leaving:
        left = int(leaving.code or 0)
    if left != code:
        raise RuntimeError(f"exit code {left} instead of {code}")


def request(pipeline: str, run_id: str, **asked: Any) -> None:
    """Write down a run in stages, as the first task of Airflow's DAG does."""
    store, requests = (importlib.import_module(f"spark_jobs.{name}") for name in ("run_store", "requests"))
    loaded = importlib.import_module("spark_jobs.definition").load_pipeline(definition(pipeline))
    folder = store.RunStore.configured().folder(run_id)
    said = requests.request_record(
        run_id, loaded, "backfill", "a restatement", datetime.now(UTC), asked, requested_by="alice"
    )
    folder.write(store.REQUEST, {**said, "dag_id": f"backfill__{pipeline}", "dag_run_id": run_id})
    folder.write_text(store.DEFINITION, loaded.text)


def stage(run_id: str, name: str, chunk: int | None = None, *, why: str = "", code: int = 0) -> None:
    """Carry out one stage of a run, as a submitted Spark application does."""
    print("stage", run_id, name, chunk or "", flush=True)
    left = importlib.import_module("spark_jobs.application").run_stage(run_id, name, chunk, why)
    if left != code:
        raise RuntimeError(f"exit code {left} instead of {code}")


def make_runs() -> None:
    """All runs of the project; what each shows is in README.md."""
    define("orders", "Published each night.", end="freeze")
    rewindow("run", definition("orders"), "--run-id", "orders-first", "--reason", "the first backfill")
    write_file(PROJECT / "data" / "orders", 1, "json")
    rewindow("run", definition("orders"), "--run-id", "orders-dry", "--dry-run=diff")
    rewindow("run", definition("orders"), "--run-id", "orders-never", "--publish", "never", code=3)
    rewindow("reconcile", definition("orders"), "--run-id", "orders-night")
    rewindow("run", definition("orders"), "--run-id", "orders-again")

    define("visits", "Each restatement needs an approval.", kind="parquet", publish="{policy: on_approval}")
    rewindow("run", definition("visits"), "--run-id", "visits-first", code=3)
    rewindow("publish", "visits-first", "--reason", "looked at it")
    write_file(PROJECT / "data" / "visits", 1, "parquet")
    rewindow("reconcile", definition("visits"), "--run-id", "visits-waiting", code=3)

    define("refunds", "Nothing is published yet.", publish="{policy: on_approval}")
    rewindow("run", definition("refunds"), "--run-id", "refunds-discarded", code=3)
    rewindow("discard", "refunds-discarded", "--reason", "the wrong day")
    request("refunds", "refunds-rejected")
    for name in ("plan", "verify"):
        stage("refunds-rejected", name)
    approval = {"decision": "rejected", "by": "bob", "at": "2020-09-14 08:00:00+00:00", "comment": "not today"}
    folder = importlib.import_module("spark_jobs.run_store").RunStore.configured().folder("refunds-rejected")
    folder.write("approval.json", approval)
    stage("refunds-rejected", "discard", why="rejected by bob: not today")
    rewindow("run", definition("refunds"), "--run-id", "refunds-waiting", code=3)

    define("shipments", "Run in stages.", publish="{policy: within_tolerance, tolerance: 5 %}")
    request("shipments", "shipments-staged", chunks=2)
    for name, chunk in (("plan", None), ("replay", 1), ("replay", 2), ("verify", None)):
        stage("shipments-staged", name, chunk)

    define("returns", "A critical expectation fails.")
    suite = {
        "name": "returns",
        "meta": {"data": "windows"},
        "expectations": [
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "n", "max_value": 3},
                "severity": "critical",
                "description": "A window has few records",
                "meta": {"name": "few-records"},
            }
        ],
    }
    (PROJECT / "expectations" / "returns.json").write_text(json.dumps(suite, indent=2))
    rewindow("run", definition("returns"), "--run-id", "returns-closed", code=3)

    define("ratios", "An aggregate divides by zero.", total="sum(v div (v - 5))")
    rewindow("run", definition("ratios"), "--run-id", "ratios-failed", code=5)

    for run in sorted((PROJECT / "home" / "runs").iterdir()):
        rewindow("report", run.name)


def pack() -> None:
    """Pack the project without logs, report pages (they are large and made anew) and what Spark leaves."""
    for page in (PROJECT / "home" / "runs").glob("*/report.html"):
        page.unlink()
    for name, kind in (("orders", "json"), ("visits", "parquet")):
        write_file(PROJECT / "arrives-later" / name, 2, kind)
    paths = [PROJECT / name for name in ("pipelines", "expectations", "data", "arrives-later")]
    paths += [PROJECT / "home" / name for name in ("catalog.db", "warehouse", "runs")]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(file for top in paths for file in ([top] if top.is_file() else top.rglob("*"))):
            if path.is_file() and not path.name.endswith(".crc"):
                entry = archive.gettarinfo(path, arcname=str(path.relative_to(PROJECT)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    PACKED.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))
    print(f"{PACKED}: {PACKED.stat().st_size:,} bytes")


def main() -> None:
    import spark_jobs

    code = Path(str(spark_jobs.__file__)).parents[1]
    shutil.rmtree(PROJECT, ignore_errors=True)
    for name in ("pipelines", "home"):
        (PROJECT / name).mkdir(parents=True)
    (PROJECT / "expectations").mkdir()
    for name in ("input", "windows", "reconciliation"):
        shutil.copy(code / "expectations" / f"{name}.json", PROJECT / "expectations")
    os.environ |= {
        "REWINDOW_HOME": str(PROJECT / "home"),
        "REWINDOW_EXPECTATIONS": str(PROJECT / "expectations"),
        "REWINDOW_DRIVER_MEMORY": "1g",
        "COLUMNS": "200",
    }
    os.chdir(PROJECT)
    make_runs()
    pack()


if __name__ == "__main__":
    main()
