from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import SourceError
from spark_jobs.sources import check_expressions
from tests.sampling import first_of
from tests.sources.conftest import records, write_log

DEFINITION = """\
name: p
history:
  kind: files
  path: log/*.parquet
  format: parquet
  position:
    partition: partition
    offset: offset
    arrival: arrival
value:
  format: json
  column: value
  schema: sched_dep STRING, distance BIGINT
keys:
  carrier: key
event_time:
  expression: sched_dep
  unit: iso
watermark:
  generator: bounded_out_of_orderness
  bound: 30 min
filter:
  before_watermark: distance > 0
  after_watermark: carrier <> 'XX'
window: {type: tumbling, size: 1 h}
aggregates:
  n: count(*)
  last_distance: max_by(distance, struct(rw_arrival, rw_partition, rw_offset))
"""


@pytest.fixture
def check(spark, tmp_path: Path):
    write_log(tmp_path / "log" / "a.parquet", records((0, 0, 0)))

    def checked(*replacements: tuple[str, str]) -> list[str]:
        text = DEFINITION
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "p.yaml"
        file.write_text(text)
        return [str(found).removeprefix(f"{tmp_path}/") for found in check_expressions(spark, load_pipeline(file))]

    return checked


def test_a_sound_definition_has_no_problems(check) -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    first_of([
        ("offset: offset", "offset: ofset",
         "p.yaml:8: history.position.offset: there is no column `ofset`; did you mean `offset`? known columns: "
         "partition, offset, arrival, key, value"),
        ("offset: offset", "offset: CAST(offset AS DOUBLE)",
         "p.yaml:8: history.position.offset: is DOUBLE, not a whole number; name an integer column, or write "
         "CAST(... AS BIGINT)"),
        ("arrival: arrival", "arrival: key",
         "p.yaml:9: history.position.arrival: is STRING, not a timestamp; write `arrival_unit: iso` for ISO-8601 text"),
        ("column: value", "column: valu",
         "p.yaml:12: value.column: there is no column `valu`; did you mean `value`? known columns: "
         "partition, offset, arrival, key, value"),
        ("column: value", "column: offset",
         "p.yaml:12: value.column: column `offset` is BIGINT, not text; name a STRING or BINARY column"),
        ("distance BIGINT", "distance BIGNT", "p.yaml:13: value.schema: not a schema: "),
        ("distance BIGINT", "distance BIGINT, Distance INT",
         "p.yaml:13: value.schema: not a schema: field distance is named twice"),
        ("carrier: key", "carrier: kex", "p.yaml:15: keys.carrier: there is no column `kex`; did you mean `key`?"),
        ("carrier: key", "carrier: upper(key", "p.yaml:15: keys.carrier: not a Spark SQL expression: "),
        ("carrier: key", "carrier: uper(key)", "p.yaml:15: keys.carrier: there is no function `uper`"),
        ("carrier: key", "carrier: max(key)",
         "p.yaml:15: keys.carrier: must give one value for each record; leave out aggregates, window functions"),
        ("carrier: key", "carrier: explode(array(key))", "p.yaml:15: keys.carrier: must give one value for each"),
        ("carrier: key", "carrier: row_number() over (order by key)", "p.yaml:15: keys.carrier: must give one value"),
        ("carrier: key", "carrier: rand()", "p.yaml:15: keys.carrier: rand() gives another value at each run"),
        ("carrier: key", "carrier: current_timestamp()",
         "p.yaml:15: keys.carrier: current_timestamp() gives another value"),
        ("carrier: key", "carrier: map(key, 1)",
         "p.yaml:15: keys.carrier: is MAP<STRING,INT>, and records cannot be grouped by that"),
        ("carrier: key", "carrier: array(struct(map(key, 1) AS m))",
         "p.yaml:15: keys.carrier: is ARRAY<STRUCT<M:MAP<STRING,INT>>>, and records cannot be grouped by that"),
        ("expression: sched_dep", "expression: sched_depp",
         "p.yaml:17: event_time.expression: there is no column `sched_depp`; did you mean `sched_dep`? known columns: "
         "partition, offset, arrival, key, value, sched_dep, distance, carrier"),
        ("unit: iso", "unit: timestamp",
         "p.yaml:17: event_time.expression: is STRING, not a timestamp; write `unit: iso` for ISO-8601 text"),
        ("before_watermark: distance > 0", "before_watermark: distance",
         "p.yaml:23: filter.before_watermark: is BIGINT; write a condition, such as `distance > 0`"),
        ("carrier <> 'XX'", "carier <> 'XX'", "p.yaml:24: filter.after_watermark: there is no column `carier`"),
        ("n: count(*)", "n: distance + 1", "p.yaml:27: aggregates.n: "),
        ("n: count(*)", "n: sum(distanc)",
         "p.yaml:27: aggregates.n: there is no column `distanc`; did you mean `distance`? known columns: "),
        ("n: count(*)", "n: collect_list(distance)", "p.yaml:27: aggregates.n: collect_list() depends on the order"),
        ("generator: bounded_out_of_orderness\n  bound: 30 min", "generator: punctuated\n  lag: 0\n  marker: distance",
         "p.yaml:22: watermark.marker: is BIGINT; write a condition"),
        ("generator: bounded_out_of_orderness", "generator: interleaved\n  stream: devise",
         "p.yaml:21: watermark.stream: there is no column `devise`"),
        ("{type: tumbling, size: 1 h}", "{type: session, gap_expression: key}",
         "p.yaml:25: window.gap_expression: is STRING; write a number of milliseconds"),
    ], 10),
)  # fmt: skip
def test_each_field_is_refused_at_its_line_and_once(check, old: str, new: str, problem: str) -> None:
    found = check((old, new))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_all_problems_are_reported_together_in_the_order_of_the_file(check) -> None:
    found = check(("offset: offset", "offset: nope"), ("carrier: key", "carrier: nope"), ("count(*)", "sum(nope)"))
    assert [problem.split(" ")[1] for problem in found] == [
        "history.position.offset:",
        "keys.carrier:",
        "aggregates.n:",
    ]


def test_a_missing_file_is_a_source_error(check, tmp_path: Path) -> None:
    (tmp_path / "log" / "a.parquet").unlink()
    with pytest.raises(SourceError, match="no file matches"):
        check()


def test_json_and_csv_are_checked_by_the_schema_where_the_files_are_not(check) -> None:
    changes = [
        ("path: log/*.parquet", "path: elsewhere/*.json"),
        ("format: parquet", "format: json"),
        ("  format: json\n  column: value\n", ""),
        ("distance BIGINT", "distance BIGINT, partition INT, offset BIGINT, arrival TIMESTAMP, key STRING"),
    ]
    assert check(*changes) == []
    (missing,) = check(*changes, ("expression: sched_dep", "expression: nope"))
    assert missing.endswith("; if the records have it, add it to `value.schema`")
