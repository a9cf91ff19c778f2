"""Definitions side by side say of each what a run of that definition gives; nothing is published."""

from __future__ import annotations

from pathlib import Path
from statistics import median_low

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.whatif.definitions import variants_of
from spark_jobs.whatif.found import Measured
from spark_jobs.whatif.measure import measure
from spark_jobs.whatif.page import render
from tests.runs.small_nights import log_of
from tests.runs.small_runs import definition_text, write

HOSTILE = "<script>alert(1)</script>"
SETS = ["watermark.bound=2s", "allowed_lateness=1 min, watermark.bound=30 s"]


def _definition(folder: Path, name: str, namespace: str = "what_if_tests") -> Pipeline:
    path = folder / f"{name}.yaml"
    path.write_text(definition_text(name, folder / "data", namespace=namespace))
    return load_pipeline(path)


def _published_by(spark, variant: Pipeline, namespace: str) -> list[dict]:
    """The windows of a run of a definition, in a table of its own."""
    output = variant.output.model_copy(update={"namespace": namespace})
    alone = variant.model_copy(update={"output": output})
    execute(spark, alone, make_plan(spark, alone), NoProgress())
    instants = ("window_start", "window_end", "closed_at")
    rows = spark.table(Tables.of(alone).windows).withColumns({n: F.unix_millis(n) for n in instants})
    return [row.asDict() for row in rows.collect()]


def _most_held(records: list[dict], windows: list[dict], bound: int, lateness: int) -> int:
    """The most windows held at once, record by record: from the first record to the watermark behind the lateness."""
    closed = [(w["k"], w["window_start"], w["window_end"]) for w in windows if w["state"] == "closed"]
    last, held, most = {0: -1, 1: -1}, set(), 0
    for r in sorted(records, key=lambda r: (r["a"], r["p"], r["o"])):
        mark = min(last.values()) - bound - 1
        own = [one for one in closed if one[0] == r["k"] and one[1] <= r["t"] < one[2]]
        held |= {one for one in own if mark < one[2] - 1 + lateness}
        most = max(most, len(held))
        last[r["p"]] = max(last[r["p"]], r["t"])
        mark = min(last.values()) - bound - 1
        held = {one for one in held if mark < one[2] - 1 + lateness}
    return most


def _delays(records: list[dict], windows: list[dict], bound: int) -> list[int]:
    """How long after its end the watermark passed each window, record by record; a late one may fire later."""
    last, open_, found = {0: -1, 1: -1}, {w["window_end"] for w in windows if w["state"] == "closed"}, {}
    for r in sorted(records, key=lambda r: (r["a"], r["p"], r["o"])):
        last[r["p"]] = max(last[r["p"]], r["t"])
        passed = {end for end in open_ if min(last.values()) - bound - 1 >= end - 1}
        found |= {end: r["a"] - end for end in passed}
        open_ -= passed
    return sorted(found[w["window_end"]] for w in windows if w["state"] == "closed" and w["window_end"] in found)


def test_each_definition_is_measured_as_a_run_of_it_would_be(spark, tmp_path) -> None:
    defined = _definition(tmp_path, "shops")
    records = [r | {"k": HOSTILE if r["k"] == "b" else r["k"]} for r in log_of(7, count=400)]
    write(tmp_path / "data", records)
    execute(spark, defined, make_plan(spark, defined), NoProgress())
    before = spark.table(Tables.of(defined).windows).collect()
    variants = variants_of(defined, SETS)
    found = measure(spark, variants, NoProgress())
    assert [one.name for one in found.definitions] == ["as defined", *SETS]
    published = {
        (w["k"], w["window_start"]): (w["n"], w["total"]) for w in _published_by(spark, defined, "what_if_own")
    }
    for number, (variant, one) in enumerate(zip(variants, found.definitions, strict=True)):
        windows = _published_by(spark, variant.pipeline, f"what_if_{number}")
        _assert_measured(one, windows, records, variant.pipeline, published)
    assert found.definitions[0].against.different == 0 and found.definitions[1].against.different
    assert found.definitions[1].dropped > found.definitions[0].dropped > found.definitions[2].dropped
    assert spark.table(Tables.of(defined).windows).collect() == before
    assert Ledger(spark, Tables.of(defined)).runs().count() == 1
    page = render(found)
    assert HOSTILE not in page and "&lt;script&gt;alert(1)" in page and page.count("<circle") == 3


def _assert_measured(
    one: Measured, windows: list[dict], records: list[dict], pipeline: Pipeline, published: dict
) -> None:
    assert one.dropped == sum(w["records_dropped"] for w in windows)
    assert one.late == sum(w["records_late"] for w in windows)
    delays = sorted(w["closed_at"] - w["window_end"] for w in windows if w["closed_at"] and w["state"] == "closed")
    assert (one.first.median, one.first.longest) == (median_low(delays), delays[-1])
    assert one.last.longest >= one.first.longest
    values = {(w["k"], w["window_start"]): (w["n"], w["total"]) for w in windows if w["state"] == "closed"}
    shown = {key: value for key, value in published.items() if value[0] is not None}
    both = values.keys() & shown.keys()
    differ = [key for key in both if values[key] != shown[key]]
    against = one.against
    assert (against.different, against.same) == (len(differ), len(both) - len(differ))
    assert (against.only_here, against.only_published) == (len(values.keys() - both), len(shown.keys() - both))
    assert against.total["n"] == sum(abs(values[key][0] - shown[key][0]) for key in differ)
    assert len(against.samples) == min(5, len(differ) + against.only_here + against.only_published)
    most = _most_held(records, windows, pipeline.watermark.bound, pipeline.allowed_lateness)
    assert most <= one.state <= most + 3, (one.name, most, one.state)


def test_the_state_of_sessions_is_counted(spark, tmp_path) -> None:
    path = tmp_path / "visits.yaml"
    gap = "window: {type: session, gap: 5 s}"
    path.write_text(definition_text("visits", tmp_path / "data", namespace="what_if_tests", window=gap))
    defined, records = load_pipeline(path), log_of(11, count=300)
    write(tmp_path / "data", records)
    for number, (variant, one) in enumerate(
        zip(found := variants_of(defined, SETS), measure(spark, found, NoProgress()).definitions, strict=True)
    ):
        windows = _published_by(spark, variant.pipeline, f"what_if_sessions_{number}")
        bound, lateness = variant.pipeline.watermark.bound, variant.pipeline.allowed_lateness
        most = _most_held(records, windows, bound, lateness)
        assert 1 < most <= one.state <= most + 3, (one.name, most, one.state)
        delays = _delays(records, windows, bound)
        assert one.first.median == median_low(delays) and one.first.longest >= delays[-1]
        assert lateness or (one.first.median, one.first.longest) == (median_low(delays), delays[-1])


def test_a_change_that_no_order_of_additions_makes_is_a_difference(spark, tmp_path) -> None:
    path = tmp_path / "sums.yaml"
    sums = definition_text("sums", tmp_path / "data", namespace="what_if_sums", aggregates="total: sum(v * 1.1D)")
    path.write_text(sums)
    defined = load_pipeline(path)
    write(tmp_path / "data", log_of(7, count=100))
    execute(spark, defined, make_plan(spark, defined), NoProgress())
    table = Tables.of(defined).windows
    own = variants_of(defined, SETS)[:1]
    assert measure(spark, own, NoProgress()).definitions[0].against.different == 0
    moved = spark.table(table).where("state = 'closed' AND total > 0").count()
    spark.sql(f"UPDATE {table} SET total = total * (1 + 1e-10D) WHERE total > 0")
    against = measure(spark, own, NoProgress()).definitions[0].against
    assert moved and against.different == moved and against.samples[0].column == "total"


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], "0 other definitions"),
        (["watermark.bound=1s"] * 5, "5 other definitions"),
        (["watermark.bound"], "sets no field"),
        (["watermark.bound=often"], "watermark.bound: "),
        (["watermark.bond=1s"], "watermark.bond: "),
        (["name.first=x"], "`name` has no fields"),
        (["keys.k=v", "keys={v: v}"], "has other keys"),
        (["watermark.bound=[1"], "is no value"),
    ],
)
def test_a_set_that_makes_no_definition_is_refused_in_a_sentence(tmp_path, sets: list[str], said: str) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DefinitionError) as refused:
        variants_of(_definition(tmp_path, "shops"), sets)
    assert said in str(refused.value) and len(str(refused.value).splitlines()) == 1
