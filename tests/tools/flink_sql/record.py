"""Records the cases of `tests/golden/flink_sql` anew, on real Flink SQL of two versions, in a local cluster.

    python -m tests.tools.flink_sql.record --jars WORK [NAME ...]

`WORK` keeps Flink's jars, which come from the package `apache-flink-libraries` with the first use (560 MB). With names
only these cases are recorded.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from tests.tools.flink_sql.cases import all_cases
from tests.tools.flink_sql.jobs import job_of

VERSIONS = ("2.3.0", "1.20.3", "1.20.0")
HERE = Path(__file__).parent
GOLDEN = Path("tests/golden/flink_sql")
OPENED = (
    *("lang", "net", "io", "nio", "lang.reflect", "text", "time"),
    *("util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"),
)


def jars_of(version: str, work: Path) -> Path:
    """The folder of Flink's jars; fetches and unpacks the package where it is not there yet."""
    folder = work / version
    if not folder.exists():
        package = f"apache-flink-libraries=={version}"
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(work / "packages"), package]
        subprocess.run(download, check=True)
        (archive,) = (work / "packages").glob(f"*{version}*")
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(folder)
        else:
            with tarfile.open(archive) as source:
                source.extractall(folder, filter="data")
    return next(folder.resolve().rglob("flink-dist-*.jar")).parent


def run(version: str, work: Path, jobs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What this version of Flink did with each job, by name."""
    jars, classes = jars_of(version, work), work / f"classes-{version}"
    shutil.rmtree(classes, ignore_errors=True)
    shutil.copytree(HERE / "java" / "META-INF", classes / "META-INF")
    sources = [str(path) for path in (HERE / "java").glob("*.java")]
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", *sources], check=True)
    given, found = work / "jobs.jsonl", work / f"found-{version}.jsonl"
    given.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
    quiet = f"-Dlog4j2.configurationFile={HERE / 'java' / 'log4j2.properties'}"
    command = ["java", "-Xmx2g", *opened, quiet, "-cp", f"{classes}:{jars}/*", "Recorder", str(given), str(found)]
    subprocess.run(command, check=True)
    return {result["name"]: result for result in map(json.loads, found.read_text().splitlines())}


def expected_of(result: dict[str, Any]) -> dict[str, Any]:
    """A result as a case keeps it: `rows` with the indices of the records that each counts."""
    rows = [
        [kind, at, key, start, end, count, total, [i for i in range(60) if mark >> i & 1]]
        for kind, at, key, start, end, count, total, mark in result["rows"]
    ]
    plan = result["plan"] or ""
    two_phases = "LocalWindowAggregate" in plan
    return {
        "row_columns": ["kind", "at", "key", "start", "end", "count", "sum", "records"],
        "rows": rows,
        "phases": 2 if two_phases else 1,
        "error": result["error"],
    }


def main() -> None:
    """Record, and write one file a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.jars.mkdir(parents=True, exist_ok=True)
    cases = [case for case in all_cases() if not arguments.names or case["name"] in arguments.names]
    jobs = [job_of(case) for case in cases]
    newest, *older = ((version, run(version, arguments.jars, jobs)) for version in VERSIONS)
    GOLDEN.mkdir(exist_ok=True)
    for case in cases:
        case["flink_versions"] = list(VERSIONS)
        case["expected"] = expected_of(newest[1][case["name"]])
        for version, found in older:
            other = expected_of(found[case["name"]])
            if other != case["expected"]:
                case[f"expected_{version}"] = other
        (GOLDEN / f"{case['name']}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
