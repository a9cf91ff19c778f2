"""Records `cases.json` and `discovered.json` from real Flink: `python -m tests.golden.union.make_cases FOLDER`.

FOLDER holds the jars of Flink's `lib`, see README.md. What is random follows from a seed, and the rest from Flink.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_jobs.eventtime.flink.strategy import WatermarkScope
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness, Punctuated
from tests.replay.histories import random_union, with_discoveries

HERE = Path(__file__).parent
CASES = 40
MOST_RECORDS = 250


def script(seed: int, *, discovers: bool) -> dict[str, Any]:
    """A case without what Flink makes of it. `discovers`: some partitions are discovered later."""
    draw = random.Random(seed)
    history = random_union(draw, density=8)
    if discovers:
        history = with_discoveries(history, draw)
    whole, owns = history.strategy, {}
    for own in whole.of_subtasks:
        generator = draw.choice([BoundedOutOfOrderness(draw.choice([0, 200, 2_000]))] * 3 + [Punctuated(100)])
        owns.setdefault(id(own), replace(own, generator=generator, scope=WatermarkScope.PARTITION))
    records = history.records[:MOST_RECORDS]
    until = history.until if len(records) == len(history.records) else records[-1].arrival
    return {
        "interval": whole.interval,
        "start": whole.timer_start,
        "end": until,
        "subtasks": [
            [
                generator.kind.value,
                generator.tolerance,
                "per_event" if own.per_event else "periodic",
                own.idleness,
                list(partitions),
            ]
            for partitions, own in zip(whole.subtasks, (owns[id(one)] for one in whole.of_subtasks), strict=True)
            for generator in [own.generator]
        ],
        **({"discovered": [list(one) for one in whole.discovered]} if discovers else {}),
        "records": [[r.partition, r.arrival, r.timestamp, int(r.marker)] for r in records],
    }


def as_input(case: dict[str, Any]) -> str:
    discovered = dict(case.get("discovered", ()))
    lines = [f"{case['interval']} {case['start']} {case['end']}", str(len(case["subtasks"]))]
    for kind, bound, emission, idleness, partitions in case["subtasks"]:
        first = [partition for partition in partitions if partition not in discovered]
        known = " ".join(map(str, (len(first), *first)))
        lines.append(f"{kind} {bound} {emission} {-1 if idleness is None else idleness} {known}")
    subtask_of = {p: index for index, subtask in enumerate(case["subtasks"]) for p in subtask[4]}
    lines.append(str(len(discovered)))
    lines += [f"{at} {subtask_of[partition]} {partition}" for partition, at in discovered.items()]
    return "\n".join([*lines, *(" ".join(map(str, record)) for record in case["records"])])


def main(jars: Path, classes: Path) -> None:
    path = f"{jars}/*"
    subprocess.run(["javac", "-cp", path, "-d", str(classes), str(HERE / "UnionRecorder.java")], check=True)
    record(path, classes, "cases.json", discovers=False)
    record(path, classes, "discovered.json", discovers=True)


def record(path: str, classes: Path, name: str, *, discovers: bool) -> None:
    """Write one file of cases."""
    cases, seed = [], 0
    while len(cases) < CASES:
        case = script(seed, discovers=discovers)
        seed += 1
        if len(case["records"]) < 20 or (discovers and not case["discovered"]):
            continue
        said = subprocess.run(
            ["java", "-cp", f"{classes}:{path}", "UnionRecorder"],
            input=as_input(case), capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows = [line.split() for line in said.stdout.splitlines()]
        cases.append({"seed": seed - 1, **case, "expected": [[int(a), int(b), c, int(d)] for a, b, c, d in rows]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / name).write_text(f'{{"flink": "2.3.0", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
