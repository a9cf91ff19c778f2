"""The windowed queries of Nexmark: what their definitions give is what Flink gives for the same SQL and records."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.project.flink_import import import_script
from spark_jobs.project.flink_parser import FlinkParser
from tests.runs.small_runs import run
from tests.tools.flink_values import run_java

pytestmark = pytest.mark.long

DATA = Path(__file__).parents[1] / "data"
SCRIPT = (DATA / "flink_sql/nexmark.sql").read_text()
WINDOW = "CAST(window_start AS STRING), CAST(window_end AS STRING)"
QUERIES = {
    "hot_items_windows": f"""
        SELECT auction, {WINDOW}, COUNT(*)
        FROM TABLE(HOP(TABLE bids, DESCRIPTOR(made_at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end""",
    "highest_bid_windows": f"""
        SELECT {WINDOW}, MAX(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(made_at), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end""",
    "bidder_sessions": """
        SELECT bidder, CAST(SESSION_START(made_at, INTERVAL '10' SECOND) AS STRING),
          CAST(SESSION_END(made_at, INTERVAL '10' SECOND) AS STRING), COUNT(*)
        FROM bids GROUP BY bidder, SESSION(made_at, INTERVAL '10' SECOND)""",
}
COLUMNS = {
    "hot_items_windows": ("auction_2", "window_start", "window_end", "num"),
    "highest_bid_windows": ("window_start", "window_end", "highest"),
    "bidder_sessions": ("bidder", "window_start", "window_end", "bids"),
}


def market(events: int = 3000) -> list[dict]:
    """Events of a market in the order of their arrival: mostly in order, some up to 8 s late."""
    chance = random.Random(5)
    found = []
    for place in range(events):
        late = chance.choice([0, 0, 0, 200, 1500, 5000, 8000])
        at = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(milliseconds=place * 100 - late)
        made_at = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"
        arrived = datetime(2024, 3, 1, 1, tzinfo=UTC) + timedelta(milliseconds=place)
        kind = chance.choice([0, 1, 2, 2, 2, 2, 2])
        one = {"part": 0, "place": place, "arrived": arrived.isoformat(timespec="milliseconds"), "kind": kind}
        if kind == 0:
            one["person"] = {"id": place % 50, "name": f"n{place}", "city": "Köln", "made_at": made_at}
        elif kind == 1:
            one["auction"] = {"id": place % 30, "seller": place % 50, "category": 1, "made_at": made_at}
        else:
            bid = {"auction": chance.randrange(6), "bidder": chance.randrange(200), "price": chance.randrange(10_000)}
            one["bid"] = {**bid, "channel": "web", "made_at": made_at}
        found.append(one)
    return found


def test_windows_of_nexmark_give_what_flink_gives(spark, tmp_path: Path) -> None:
    (tmp_path / "market.jsonl").write_text("".join(json.dumps(one) + "\n" for one in market()))
    text = SCRIPT.replace("file:///data/market.jsonl", f"file://{tmp_path}/market.jsonl")
    (tmp_path / "nexmark.sql").write_text(text)
    try:
        printed = run_java(DATA / "flink_queries/Queries.java", str(tmp_path / "nexmark.sql"), *QUERIES.values())
    except EnvironmentSetupError as error:
        pytest.skip(str(error))
    flink = [line.split("\t")[1:] for line in printed.splitlines() if line.startswith("ROW\t")]
    with FlinkParser() as parser:
        found = import_script(text, "nexmark.sql", parser)
    assert [(one.name, one.line) for one in found.missing] == [("new_sellers", 54), ("bidder_now", 77)]
    assert {one.name for one in found.definitions} == {*QUERIES}
    for number, name in enumerate(QUERIES):
        (definition,) = (one for one in found.definitions if one.name == name)
        position = "  position: {partition: part, offset: place, arrival: arrived, arrival_unit: iso}"
        filled = re.sub(r"(?m)^(  format: json.*)$", rf"\1\n{position}", definition.text, count=1)
        filled = filled.replace("end_of_input: freeze", "end_of_input: flush") + "output: {namespace: nexmark}\n"
        pipeline = load_pipeline(tmp_path / f"{name}.yaml", text=filled)
        run(spark, pipeline)
        rows = spark.table(Tables.of(pipeline).windows).where("valid_to IS NULL AND records_on_time > 0")
        shown = [f"date_format({one}, 'yyyy-MM-dd HH:mm:ss.SSS')" if "window" in one else one for one in COLUMNS[name]]
        ours = Counter(tuple(map(str, row)) for row in rows.selectExpr(*shown).collect())
        theirs = Counter(tuple(one[1:]) for one in flink if one[0] == str(number))
        assert len(theirs) > 20 and ours == theirs
        is_never_late = name == "bidder_sessions"  # the gap is longer than any record is behind
        assert is_never_late == (spark.table(Tables.of(pipeline).late).count() == 0)
