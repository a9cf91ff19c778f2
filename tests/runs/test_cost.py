"""What a run will cost: from metadata and from earlier runs; above the definition's limits a plan is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.planning.cost import Cost, Size, Taken, check_size, estimated
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from tests.runs.small_runs import definition_text, pipeline, record, run, write

sizes = st.integers(1, 10**9)


@given(st.lists(st.tuples(sizes, st.floats(0, 1e4)), min_size=1, max_size=8), sizes)
def test_an_estimate_lies_between_the_runs_of_like_size_and_grows_with_the_records_above(runs, records: int) -> None:
    taken = [Taken(size, {"windows": seconds}) for size, seconds in runs]
    found = estimated(records, None, taken).seconds["windows"]
    largest = max(size for size, _ in runs)
    assert min(seconds for _, seconds in runs) - 0.001 <= found
    assert found <= max(seconds for _, seconds in runs) * max(1, records / largest) + 0.001


def test_of_one_run_a_larger_one_takes_its_share_more_and_of_none_nobody_knows() -> None:
    one = [Taken(1_000_000, {"timeline": 10.0, "windows": 50.0})]
    assert estimated(2_000_000, None, one).seconds == {"timeline": 20.0, "windows": 100.0}
    assert estimated(10, None, one).total == 60.0
    words = estimated(2_000_000, 3_000_000, one).in_words()
    assert words == "2,000,000 records, 3.0 MB; about 2 min, from 1 earlier run (timeline 20 s, windows 100 s)"
    assert estimated(5, None, []).total is None
    assert "no run of this pipeline" in Cost(5, None).in_words()


def limited(tmp_path, name: str, limits: str) -> Pipeline:
    text = definition_text(name, tmp_path / "data").replace("end_of_input:", f"limits: {limits}\nend_of_input:")
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_a_plan_above_the_limits_is_refused_with_the_line_and_allowed_when_it_is_meant(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    small = limited(tmp_path, "costs", "{records: 299}")
    with pytest.raises(DefinitionError, match=r"would read 300 records, and the definition allows 299") as refused:
        make_plan(spark, small)
    assert "costs.yaml:" in str(refused.value) and "--beyond-limits" in (refused.value.hint or "")
    plan = make_plan(spark, small, beyond_limits=True)
    assert plan.cost is not None and plan.cost.records == 300 and plan.cost.total is None
    assert plan_from_json(plan.to_json()).cost == plan.cost

    with pytest.raises(DefinitionError, match=r"would read \d+\.\d kB, and the definition allows 1.0 kB"):
        make_plan(spark, limited(tmp_path, "costs", "{bytes: 1 kB}"))
    fits = limited(tmp_path, "costs", "{records: 300, bytes: 1 GB, duration: 1 ms}")
    run(spark, fits)  # nothing is known yet of how long it takes
    with pytest.raises(DefinitionError, match=r"would take about .*, and the definition allows 1 ms"):
        make_plan(spark, fits)
    known = make_plan(spark, fits, beyond_limits=True).cost
    assert known is not None and known.runs == 1 and {"timeline", "windows", "publish"} <= known.seconds.keys()
    assert fits.definition_hash == pipeline(tmp_path, "costs").definition_hash


def test_a_topic_is_refused_by_its_offsets_before_a_record_is_read(tmp_path) -> None:
    defined = limited(tmp_path, "of_topic", "{records: 10}")
    check_size(defined, Size(records=10))
    with pytest.raises(DefinitionError, match="would read 11 records"):
        check_size(defined, Size(records=11))


@pytest.mark.parametrize("limits", ["{records: 0}", "{bytes: many}", "{duration: 0}", "{rows: 5}"])
def test_limits_that_are_none_are_refused(tmp_path, limits: str) -> None:
    with pytest.raises(DefinitionError, match="limits"):
        limited(tmp_path, "wrong", limits)
