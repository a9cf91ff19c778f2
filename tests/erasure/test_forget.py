"""A person who was forgotten is in no file of warehouse and run store, and no later night brings the person back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import functions as F

from spark_jobs.definition.policy import Policy
from spark_jobs.erasure.forget import Forgetting, Request
from spark_jobs.erasure.person import person_of
from spark_jobs.errors import DefinitionError, RunStateError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.run_ends import end_policy_of
from spark_jobs.report.build import build_report
from spark_jobs.runs.life.documents import Requested
from spark_jobs.runs.life.permission import Action
from spark_jobs.runs.life.reopening import discard_staged
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources.erased import erasures_table
from tests.runs.small_nights import log_of
from tests.runs.small_runs import pipeline as small_pipeline
from tests.runs.small_runs import write

ZOE = "zoë.o'hara@example.org"
WHERE = "k = 'zoë.o\\'hara@example.org'"


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found += [value or "" for _, value in attrs]


def values_in(path: Path) -> Iterator[str]:
    """What a file says, by the reader of its format."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        yield from map(_decoded, table.to_pylist())
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                yield str(metadata.row_group(group).column(column).statistics)
    elif path.suffix == ".avro":
        with AvroFile(PyArrowFileIO().new_input(str(path))) as rows:
            for row in rows:
                yield _decoded(row)
    elif path.suffix == ".json":
        text = path.read_text()
        yield text  # of other tests, documents that are damaged
        with suppress(ValueError):
            yield _decoded(json.loads(text))
    elif path.suffix == ".html":
        texts = _Texts()
        texts.feed(path.read_text())
        yield from texts.found
    else:
        yield path.read_bytes().decode(errors="replace")


def _decoded(value: object) -> str:
    """All that a record or a document has, bytes (as lower and upper bounds) as text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Mapping):
        return " ".join(_decoded(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return " ".join(map(_decoded, value))
    return " ".join(map(_decoded, value._data)) if hasattr(value, "_data") else str(value)


def files_with(text: str, *folders: Path) -> set[Path]:
    spelled = {text, json.dumps(text)[1:-1]}
    prefix = text[:15]  # Iceberg cuts bounds to 16 characters, and the last one of an upper bound is one higher
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found = set()
    for path in files:
        wanted = {prefix} if path.suffix == ".avro" else spelled
        if any(one in value for value in values_in(path) for one in wanted):
            found.add(path)
    return found


def _clock() -> datetime:
    return datetime.now(UTC)


def _records(count: int) -> list[dict]:
    """Those of `log_of`; every sixth is Zoë's, and one cannot be used."""
    rows = [r | {"k": ZOE} if i % 6 == 0 else r for i, r in enumerate(log_of(5, count=count))]
    rows[50] |= {"v": f"no number of {ZOE}", "k": ZOE}
    return rows


@pytest.fixture
def forgetful(spark, tmp_path):
    """A pipeline with two nights over Zoë's records, and their reports."""
    defined = small_pipeline(tmp_path, "people", threshold="50 %", namespace="erasure_tests")
    records = _records(360)
    for night, start in enumerate((0, 150)):
        write(tmp_path / "data", records[start : start + 150], f"part-{night}.json")
        done = reconcile(spark, defined, NoProgress(), end_policy=end_policy_of(defined, Requested(), gate=False))
        build_report(RunStore.configured().folder(done.run_id))
    return defined, records, tmp_path


def test_a_forgotten_value_is_in_no_file_and_no_night_brings_it_back(spark, forgetful, rewindow_home) -> None:
    defined, records, folder = forgetful
    tables, home = Tables.of(defined), rewindow_home
    kept = [home / "warehouse" / "erasure_tests", home / "runs"]
    before = files_with(ZOE, *kept)
    kinds = {path.suffix for path in before}
    assert {".parquet", ".avro", ".json", ".html"} <= kinds, kinds
    others = spark.table(tables.windows).where("k IS DISTINCT FROM 'zoë.o\\'hara@example.org'")
    values = sorted(map(repr, others.select("k", "window_start", "n", "total").collect()))

    request = Request(WHERE, "amal", "ticket 4711", "people-again")
    forgetting = Forgetting(spark, defined, WHERE)
    dry = forgetting.find()
    assert dry.tables["erasure_tests.people"] and dry.tables["erasure_tests.people (revisions)"]
    assert dry.tables["erasure_tests.people__late"] and dry.tables["erasure_tests.people__quarantine"] == 1
    assert dry.files["erasure_tests.people"] >= dry.tables["erasure_tests.people"] and dry.documents
    assert dry.history == sum(r["k"] == ZOE for r in records[:300])
    assert files_with(ZOE, *kept) == before  # a dry run changes nothing
    done = forgetting.carry_out(request, NoProgress(), _clock)
    assert done.found == dry and not done.left.places
    assert files_with(ZOE, *kept) == set()
    assert sorted(map(repr, spark.table(tables.windows).select("k", "window_start", "n", "total").collect())) == values
    (row,) = spark.table(erasures_table(defined)).collect()
    assert (row["requested_by"], row["reason"], row["recomputed_by"]) == ("amal", "ticket 4711", "people-again")

    write(folder / "data", records[300:], "part-3.json")
    night = reconcile(spark, defined, NoProgress())
    assert night.continued_from is not None
    whole = execute(spark, defined, make_plan(spark, defined), NoProgress())
    for run in (night, whole):
        account = Account.read(RunStore.configured().folder(run.run_id))
        assert account.unaccounted_records == 0 and account.unaccounted_pairs == 0 and account.erased
    assert account.erased + account.erased_unusable == sum(r["k"] == ZOE for r in records)
    assert account.erased_unusable == 1
    assert files_with(ZOE, *kept) == set()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("k = 'a' OR 1 = 1", "compares no column"),
        ("k LIKE 'a%'", "no equality"),
        ("kk = 'a'", "no column `kk`"),
        ("k = (SELECT 'a')", "compares a column with no value"),
        ("k = v", "compares a column with no value"),
        ("k = 'a'; DROP TABLE x", "is no condition"),
        ("k = ''", "compares a column with no value"),
        ("k = 'a' AND k = 'b'", "holds for nobody"),
        ("rw_offset = 1", "no column `rw_offset`"),
    ],
)
def test_only_equalities_of_the_records_columns_say_who_it_is(spark, where: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(said)):
        person_of(spark, where, ["k", "v"])


def test_equalities_are_read_and_written_as_quoted_names_and_literals(spark) -> None:
    person = person_of(spark, "K IN ('x', 'y\\'z') AND v = -7", ["k", "v"])
    assert person.choices == ((("k", "x"), ("v", "-7")), (("k", "y'z"), ("v", "-7")))
    rows = spark.createDataFrame([("x", -7), ("y'z", -7), ("x", 7), (None, -7)], "k STRING, v INT")
    assert [tuple(row) for row in rows.where(person.sql(rows.columns)).collect()] == [("x", -7), ("y'z", -7)]


def test_windows_of_several_people_are_computed_again_with_the_cause_erasure(spark, tmp_path) -> None:
    """The column is a field of the records and no key: the late table is known by positions."""
    defined = small_pipeline(tmp_path, "shared", namespace="erasure_tests")
    records = log_of(5, count=200)
    write(tmp_path / "data", records)
    execute(spark, defined, make_plan(spark, defined), NoProgress())
    tables = Tables.of(defined)
    late = {(r["partition"], r["offset"]) for r in spark.table(tables.late).collect()}
    came_late = [r["v"] for r in records if (r["p"], r["o"]) in late]
    gone = [*came_late[:2], *(r["v"] for r in records if r["v"] % 9 == 0)]
    where = f"v IN ({', '.join(map(str, gone))})"
    waiting = execute(
        spark, defined, make_plan(spark, defined), NoProgress(), end_policy=EndPolicy(policy=Policy.ON_APPROVAL)
    )
    request = Request(where, "amal", "ticket 4712")
    forgetting = Forgetting(spark, defined, where)
    if waiting.decision is not None and waiting.decision.action is not Action.PUBLISH:
        with pytest.raises(RunStateError, match="is not at its end"):
            forgetting.carry_out(request, NoProgress(), _clock)
        discard_staged(lambda _: spark, waiting.run_id, NoProgress(), "", person="")
    mine = {(r["p"], r["o"]) for r in records if r["v"] in gone}
    assert late & mine
    forgetting.carry_out(request, NoProgress(), _clock)
    assert {(r["partition"], r["offset"]) for r in spark.table(tables.late).collect()} == late - mine

    execute(spark, defined, make_plan(spark, defined), NoProgress())
    changed = PublishedTable(spark, tables.windows).revisions().where("revision > 1")
    assert {row["cause"] for row in changed.select("cause").distinct().collect()} == {"erasure"}
    whole = spark.table(tables.windows).agg(F.sum("total__complete"), F.sum("n__complete")).collect()[0]
    kept = [r["v"] for r in records if r["v"] not in gone]
    assert tuple(whole) == (sum(kept), len(kept))
    assert {(r["partition"], r["offset"]) for r in spark.table(tables.late).collect()} == late - mine
