"""`python -m tests.fortnight --nights 14`: nights in fast motion, a line each, and their curves as a picture.

Exit code 1 where something is not as it must be.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from pathlib import Path

import altair as alt

from spark_jobs.settings import Variable
from spark_jobs.spark.session import spark_session
from tests.fortnight.nights import Night, live
from tests.fortnight.world import World


def main() -> int:
    """Live through the nights."""
    parser = argparse.ArgumentParser(prog="python -m tests.fortnight", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nights", type=int, default=14, help="how many (default: 14)")
    parser.add_argument("--seed", type=int, default=0, help="which records and which faults")
    parser.add_argument("--curves", type=_picture, default=Path("fortnight.svg"), help="where the picture goes: *.svg")
    options = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # of services that were killed
    with tempfile.TemporaryDirectory(prefix="fortnight-") as folder:
        home = Path(folder) / "home"
        os.environ |= {"REWINDOW_HOME": str(home), Variable.SPARK_IDLE_MINUTES: "0"}
        with World(Path(folder), home) as world:
            spark = spark_session("fortnight", home=home, catalog=world.catalog, master="local[1]")
            result = live(world, spark, options.nights, options.seed, _say)
            spark.stop()
    print("\n".join(result.faults) or f"all is right; curves: {options.curves}", flush=True)
    _draw(result.nights, options.curves)
    return bool(result.faults)


def _picture(text: str) -> Path:
    file = Path(text)
    if file.suffix != ".svg" or not file.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no file *.svg in a folder that exists")
    return file


def _say(night: Night) -> None:
    memory = ", ".join(f"{name} {mib:.0f}" for name, mib in night.memory.items())
    said = f"night {night.number:2}: {night.seconds:4.0f} s, struck {night.struck}, cleared {night.cleared} times"
    print(f"{said}, {night.files} files, MiB: {memory}; {night.state[:2000]}", flush=True)


def _draw(nights: list[Night], file: Path) -> None:
    rows = [
        {"night": night.number, "what": what, "value": value}
        for night in nights
        for what, value in {"seconds": night.seconds, **night.stays}.items()
    ]
    chart = alt.Chart(alt.Data(values=rows)).mark_line(point=True).encode(x="night:O", y="value:Q")
    chart.properties(width=220, height=120).facet("what:N", columns=3).resolve_scale(y="independent").save(str(file))


if __name__ == "__main__":
    raise SystemExit(main())
