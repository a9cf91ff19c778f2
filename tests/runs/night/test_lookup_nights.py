"""Nights with a lookup: they go on while its table has the same rows, and the tables are those of a full run."""

from __future__ import annotations

import random

import pytest

from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.accounts import check_account
from tests.runs.night.shapes import ROWS, is_timed, look_up_in, looked_up
from tests.runs.small_nights import between_arrivals, log_of, tables_of
from tests.runs.small_runs import MINUTE, T0, write
from tests.sampling import seeds

KINDS = ("stay", "more", "change", "part")


@pytest.mark.parametrize("seed", seeds(1, 24))
def test_every_night_with_a_lookup_ends_in_the_tables_of_a_full_run(spark, tmp_path, seed) -> None:
    """Between two nights the rows lie in other files, no record has those that are new, one changes, or one is another
    while a part of the range is run.

    Half of the definitions have a filter before the watermark that accepts records by their rows."""
    records, draw = log_of(seed, 240), random.Random(seed + 100)
    cuts = [between_arrivals(records, cut) for cut in (draw.randrange(60, 110), draw.randrange(120, 230), len(records))]
    nightly, done, rows, kinds = looked_up(tmp_path, f"looked_up_{seed}", seed), 0, ROWS, draw.sample(KINDS, 2)
    look_up_in(spark, rows)
    for night, (kind, cut) in enumerate(zip(["", *kinds], cuts, strict=True)):
        if kind == "part":
            look_up_in(spark, rows | {"a": "meanwhile"})
            part = make_plan(spark, nightly, start=T0, end=T0 + 2 * MINUTE)
            execute(spark, nightly, part, LogProgress())
        rows = rows | {"more": {"d": f"new {night}"}, "change": {"b": f"east {night}"}}.get(kind, {})
        look_up_in(spark, rows, later=kind == "more" and is_timed(seed))
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        result = reconcile(spark, nightly, LogProgress())
        is_rejected = nightly.filter.before_watermark is not None and rows["b"] == "east 2"
        goes_on = kind in ("stay", "more") or (kind == "change" and not is_rejected)
        assert (result.continued_from is not None) == goes_on, result.note
        check_account(result)
    full = looked_up(tmp_path, f"looked_up_full_{seed}", seed)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
