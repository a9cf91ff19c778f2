# pyright: reportOptionalSubscript=false

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from spark_jobs.errors import SourceError
from spark_jobs.sources import canonical, good, inspect_history, open_history, partition_columns, quarantined
from spark_jobs.spark.failures import reading
from tests.sampling import first_of
from tests.sources.conftest import BASE, MakePipeline, position

SCHEMA = "partition INT, offset BIGINT, arrival BIGINT, carrier STRING, t BIGINT"


def of_lines(pipeline: MakePipeline, path: Path, text_format: str, *, schema: str | None = SCHEMA, **options):
    return pipeline(
        path,
        history={"format": text_format, "options": options, "position": position(arrival_unit="ms")},
        value={"format": "columns", **({"schema": schema} if schema else {})},
        keys={"carrier": "carrier"},
        event_time={"expression": "t", "unit": "ms"},
    )


def line(offset: int, **fields) -> str:
    record = {"partition": 0, "offset": offset, "arrival": BASE + offset, "carrier": "AA", "t": BASE}
    return json.dumps({**record, **fields})


def split(spark, definition) -> tuple[list[int], dict[str, str]]:
    """The good offsets, and the reason of each raw line."""
    frame = canonical(open_history(spark, definition), definition)
    bad = {row.raw: row.reason for row in quarantined(frame).collect()}
    return sorted(row.rw_offset for row in good(frame).collect()), bad


def test_malformed_json_lines_are_kept_with_their_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    bad = {"{": "not valid JSON", line(7, t="soon"): "wrong type for field t", "[1]": "not a JSON object",
           line(8, arrival=None): "no position"}  # fmt: skip
    (tmp_path / "a.json").write_text("\n".join([line(0), *bad, "", "  ", line(1)]) + "\n")
    definition = of_lines(pipeline, tmp_path, "json")
    assert split(spark, definition) == ([0, 1], bad)
    found = inspect_history(spark, definition, open_history(spark, definition))
    assert (found.records, found.quarantined) == (6, 4)


def test_a_malformed_line_survives_the_filter_and_the_missing_event_time(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    (tmp_path / "a.json").write_text("\n".join(["{", line(0, t=None), line(1), line(2, carrier="BB")]))
    definition = of_lines(pipeline, tmp_path, "json").model_copy(
        update={
            "filter": pipeline(filter={"before_watermark": "carrier = 'AA' AND offset >= 0"}).filter,
            "event_time": pipeline(event_time={"expression": "t", "unit": "ms", "missing": "drop"}).event_time,
        }
    )
    assert split(spark, definition) == ([1], {"{": "not valid JSON"})


def test_a_json_schema_is_inferred_where_none_is_given(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.json").write_text("\n".join([line(0), "{", line(1, gate="7")]))
    definition = of_lines(pipeline, tmp_path, "json", schema=None)
    opened = open_history(spark, definition)
    assert "gate" in opened.frame.columns and "_corrupt_record" not in opened.frame.columns
    assert split(spark, definition) == ([0, 1], {"{": "not valid JSON"})


def test_json_text_in_json_lines_is_decoded_too(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    inner = json.dumps({"t": BASE})
    lines = ["{", line(0, value=inner), line(1, value="{"), line(2, value=None)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    definition = of_lines(pipeline, tmp_path, "json", schema=None)
    value = pipeline(value={"format": "json", "column": "value", "schema": "t BIGINT"}).value
    assert split(spark, definition.model_copy(update={"value": value})) == (
        [0],
        {"{": "not valid JSON", lines[2]: "not valid JSON", lines[3]: "no value"},
    )


HEADER = "partition,offset,arrival,carrier,t"


def test_malformed_csv_lines_are_kept_with_their_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    bad = {"0,1,1": "not valid CSV: 5 columns are expected", "0,2,2,AA,soon": "wrong type for field t",
           "0,3,3,AA,0,9": "not valid CSV: 5 columns are expected", "0,,3,AA,0": "no position"}  # fmt: skip
    for name in ("a.csv", "b.csv"):
        good_line = f'0,{ord(name[0])},5,"A,A",{BASE}'
        (tmp_path / name).write_text("\n".join([HEADER, good_line, *(bad if name == "a.csv" else [])]))
    assert split(spark, of_lines(pipeline, tmp_path, "csv", header=True)) == ([97, 98], bad)


def test_csv_columns_go_by_the_header_and_unnamed_ones_are_left_out(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    (tmp_path / "a.csv").write_text(f"\ufefft;gate;Carrier;arrival;offset;partition\n{BASE};7;AA;1;4;2\n")
    frame = open_history(spark, of_lines(pipeline, tmp_path, "csv", header=True, sep=";")).frame
    assert frame.columns == ["rw_raw", "rw_reason", "partition", "offset", "arrival", "carrier", "t"]
    assert frame.first()[2:] == (2, 4, 1, "AA", BASE)


def test_csv_without_header_goes_by_the_order_of_the_schema(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(f"# a comment\n0,4,1,AA,{BASE}\n")
    assert split(spark, of_lines(pipeline, tmp_path, "csv", comment="#")) == ([4], {})


def test_csv_without_a_schema_is_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER}\n0,4,1,AA,{BASE}\nx,5,1,AA,{BASE}\n")
    assert split(spark, of_lines(pipeline, tmp_path, "csv", schema=None, header=True)) == (
        [4],
        {f"x,5,1,AA,{BASE}": "no position"},
    )


def test_different_headers_are_refused_by_both_names(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "\n")
    (tmp_path / "b.csv").write_text("offset,partition,arrival,carrier,t\n")
    with pytest.raises(SourceError) as refused:
        open_history(spark, of_lines(pipeline, tmp_path, "csv", header=True))
    assert refused.value.where == f"{tmp_path}/a.csv and {tmp_path}/b.csv"
    assert refused.value.what.startswith(f"the files have different headers: `{HEADER}` and `offset,")


def test_a_column_that_the_header_lacks_is_refused(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.csv").write_text("partition,offset\n")
    with pytest.raises(SourceError, match=r"the header has no column `arrival` .*the header has partition, offset\."):
        open_history(spark, of_lines(pipeline, tmp_path, "csv", header=True))


def test_folders_named_by_a_value_are_columns_of_lines_too(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.json").write_text(line(day) + "\n")
    definition = of_lines(pipeline, tmp_path, "json").model_copy(update={"keys": {"day": "day"}})
    assert partition_columns(spark, definition) == ("day",)
    frame = good(canonical(open_history(spark, definition), definition))
    assert sorted((row.day, row.rw_offset) for row in frame.collect()) == [("1", 1), ("2", 2)]


def test_folders_that_do_not_fit_together_are_told(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    for number, folders in enumerate((("y=1/s=1", "y=1"), ("s=", "s=1"))):
        root = tmp_path / str(number)
        for folder in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / "a.json").write_text(line(0) + "\n")
        with pytest.raises(SourceError, match=r"the folders `k=v` are not the same|has no name or no value"):
            open_history(spark, of_lines(pipeline, root, "json"))


def test_the_schema_gives_folders_another_type_than_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    for number, store in enumerate(("007", "08", "A1")):
        (tmp_path / f"store={store}").mkdir()
        (tmp_path / f"store={store}" / "a.json").write_text(line(number) + "\n")
    definition = of_lines(pipeline, tmp_path, "json", schema=f"{SCHEMA}, store INT")
    frame = canonical(open_history(spark, definition), definition)
    assert sorted((row.store, row.rw_reason) for row in frame.collect() if row.store) == [(7, None), (8, None)]
    assert [row.reason for row in quarantined(frame).collect()] == ["wrong type for field store"]


@pytest.mark.parametrize(
    ("options", "text", "carriers", "reasons"),
    first_of([
        ({}, 'x,"a ""b"""', ['a "b"'], 0),
        ({}, "x,\ufeff", ["\ufeff"], 0),
        ({}, '\ufeff"x",y', ["y"], 0),
        ({"escape": "\\"}, 'x,"a \\"b\\""', ['a "b"'], 0),
        ({"quote": ""}, 'x,5" pipe', ['5" pipe'], 0),
        ({"quote": "'"}, "x,'it''s, so'", ["it's, so"], 0),
        ({"sep": "||"}, 'x||"a||b"', ["a||b"], 0),
        ({"sep": "\\t"}, "x\ta,b", ["a,b"], 0),
        ({"delimiter": ";"}, "x;a,b", ["a,b"], 0),
        ({}, 'x,"open\ny"\nx,"closed"', ["open\ny", "closed"], 0),
        ({}, 'x,"1\nx,2\n\r\nx,""3""\r\n4"\r\nx,"closed"', ['1\nx,2\n\r\nx,"3"\r\n4', "closed"], 0),
        ({}, 'x,"stray\nx,"closed"\nx,last', ["closed", "last"], 1),
        ({}, 'x,good\nx,"never closed\nx,last', ["good", "last"], 1),
        ({"escape": "\\"}, 'x,"a \\"\nb"', ['a "\nb'], 0),
        ({"sep": "||"}, 'x||"a\nx||b"', ["a\nx||b"], 0),
        ({"quote": "'", "sep": ";"}, "x;'a\nx;b'", ["a\nx;b"], 0),
        ({"comment": "#"}, '# say "\nx,"a\nb"\n#"', ["a\nb"], 0),
        ({"multiLine": False}, 'x,"1\nx,2\n3"', ["2"], 2),
        ({"encoding": "windows-1252"}, 'x,"\u20ac\nx,\u00fc"', ["\u20ac\nx,\u00fc"], 0),
        ({}, 'x,a"b', [], 1),
        ({"encoding": "windows-1252"}, "x,\u20ac\u00fc", ["\u20ac\u00fc"], 0),
        ({"encoding": "Shift_JIS"}, "x,\u65e5\u672c", ["\u65e5\u672c"], 0),
    ], 8),
)  # fmt: skip
def test_csv_is_read_by_its_quotes_separators_and_encoding(
    spark, tmp_path: Path, pipeline: MakePipeline, options: dict, text: str, carriers: list[str], reasons: int
) -> None:
    (tmp_path / "a.csv").write_bytes(f"{text}\n".encode(options.get("encoding", "utf-8")))
    definition = of_lines(pipeline, tmp_path, "csv", schema="note STRING, carrier STRING", **options)
    frame = open_history(
        spark,
        definition.model_copy(
            update={
                "history": pipeline(
                    tmp_path,
                    history={
                        "format": "csv",
                        "options": options,
                        "position": position(partition="0", offset="1", arrival="1", arrival_unit="ms"),
                    },
                ).history
            }
        ),
    ).frame
    rows = frame.collect()
    assert [row.carrier for row in rows if row.rw_reason is None] == carriers
    assert len([row for row in rows if row.rw_reason is not None]) == reasons


LARGE = pytest.mark.parametrize(
    ("options", "text", "carriers", "reasons"),
    first_of([
        ({}, 'x,"1\nx,2\n3"', None, 0),
        ({}, 'x,"he said ""so""\nx,2\n3"', None, 0),
        ({}, 'x,"so""\nx,2\n3"', None, 0),
        ({}, 'x,""""\nx,"2"', ['"', "2"], 0),
        ({}, 'x,5" pipe\nx,2\nx,"3"4\nx,"5"', ["2", "5"], 2),
        ({}, 'x,good\nx,"never closed\nx,last', None, 0),
        ({}, 'x\ny,"', None, 0),
        ({"escape": "\\"}, 'x,"a\\\nx,2\n3"', None, 0),
        ({"escape": "\\"}, 'x,"a \\"\nx,2\n3"', None, 0),
        ({"escape": "\\"}, 'x,"a \\""\nx,2', ['a "', "2"], 0),
        ({"escape": ""}, 'x,"a""\nx,2', ["2"], 1),
        ({"quote": "'"}, "x,'1\nx,2\n3'", None, 0),
        ({"quote": "'"}, "x,\"1\nx,2", ['"1', "2"], 0),
        ({"quote": ""}, 'x,"1\nx,2', ['"1', "2"], 0),
        ({"sep": "||"}, 'x||"1\nx||2\n3"', None, 0),
        ({"comment": "#"}, '# "\nx,2', ["2"], 0),
        ({"lineSep": "\n"}, 'x,"1\nx,2\n3"', None, 0),
        ({"lineSep": "\n", "multiLine": True}, 'x,"1\nx,2\n3"', None, 0),
        ({"multiLine": False}, 'x,"1\nx,2\n3"', ["2"], 2),
        ({"multiLine": True}, 'x,"1\nx,2\n3"', ["1\nx,2\n3"], 0),
        ({"encoding": "windows-1252"}, 'x,"\u20ac\nx,\u00fc\n"', None, 0),
    ], 8),
)  # fmt: skip


@LARGE
def test_a_large_csv_file_is_read_by_lines_and_refused_where_a_record_spans_them(
    spark,
    tmp_path: Path,
    pipeline: MakePipeline,
    monkeypatch: pytest.MonkeyPatch,
    options: dict,
    text: str,
    carriers: list[str] | None,
    reasons: int,
) -> None:
    (tmp_path / "lar ge.csv").write_bytes(f"{text}\n".encode(options.get("encoding", "utf-8")))
    (tmp_path / "small.csv").write_text("")
    monkeypatch.setattr("spark_jobs.sources.files.lines.WHOLE_BYTES", 0)
    definition = of_lines(pipeline, tmp_path, "csv", schema="note STRING, carrier STRING", **options)
    history = definition.history.model_copy(update={"position": pipeline(history={"position": {}}).history.position})
    frame = open_history(spark, definition.model_copy(update={"history": history})).frame
    if carriers is None:
        with pytest.raises(SourceError, match=r"a record spans lines.*/lar ge.csv.*multiLine: true"), reading(""):
            frame.where("rw_reason IS NULL").groupBy("carrier").count().collect()
        return
    rows = frame.collect()
    assert sorted(row.carrier for row in rows if row.rw_reason is None) == sorted(carriers)
    assert len([row for row in rows if row.rw_reason is not None]) == reasons


def test_a_large_csv_file_whose_header_spans_lines_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text('note,"car\nrier"\nx,1\n')
    monkeypatch.setattr("spark_jobs.sources.files.lines.WHOLE_BYTES", 0)
    with pytest.raises(SourceError, match=r"a quote is still open at the end of `note,\"car`.*multiLine: true"):
        open_history(spark, of_lines(pipeline, tmp_path, "csv", schema="note STRING", header=True))


def test_bytes_that_are_no_text_cost_their_record_alone(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    text = f'0,1,1,"A\u00fc\nB",{BASE}\n0,2,1,'.encode() + b"M\xfc" + f",{BASE}\n0,3,1,C,{BASE}\n".encode()
    (tmp_path / "a.csv").write_bytes(text)
    good_offsets, bad = split(spark, of_lines(pipeline, tmp_path, "csv"))
    assert (good_offsets, list(bad.values())) == ([1, 3], ["not valid UTF-8"])


@pytest.mark.parametrize("encoding", ["UTF-16", "utf-32le", "no-such-encoding"])
def test_an_encoding_that_cannot_be_read_by_lines_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline, encoding: str
) -> None:
    (tmp_path / "a.json").write_text(line(0))
    with pytest.raises(SourceError, match=r"cannot be read line by line|there is no encoding"):
        open_history(spark, of_lines(pipeline, tmp_path, "json", encoding=encoding))


def test_a_repeated_header_is_refused_only_where_it_is_used(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.csv").write_text("carrier,note,Note,,\nAA,1,2,3,4\n")
    options = {"header": True}
    history = {"format": "csv", "options": options, "position": {}}
    kept = pipeline(tmp_path, history=history, value={"format": "columns", "schema": "carrier STRING"})
    assert [row.carrier for row in open_history(spark, kept).frame.collect()] == ["AA"]
    used = pipeline(tmp_path, history=history, value={"format": "columns", "schema": "note STRING"})
    with pytest.raises(SourceError, match="the header has `note` twice"):
        open_history(spark, used)


@pytest.mark.parametrize(
    ("name", "path", "what"),
    [
        ("events-10:00.json", "", "a colon in its name"),
        ("events-10:00.json", "events-*.json", "a colon in its name"),
        ("events-10:00.json", "events-10:00.json", "a colon in its name"),
        ("_events.json", "_events.json", "names that begin with `_`"),
        ("events.json.zst", "", "compressed with zstandard"),
    ],
)
def test_a_name_that_hadoop_does_not_read_is_told(
    spark, tmp_path: Path, pipeline: MakePipeline, name: str, path: str, what: str
) -> None:
    text = (line(0) + "\n").encode()
    (tmp_path / name).write_bytes(zstandard.compress(text) if name.endswith(".zst") else text)
    definition = of_lines(pipeline, tmp_path / path, "json")
    with pytest.raises(SourceError) as refused:
        inspect_history(spark, definition, open_history(spark, definition))
    assert what in str(refused.value)


def test_records_over_several_lines_are_refused(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    (tmp_path / "a.json").write_text("{\n}")
    with pytest.raises(SourceError, match="records over several lines cannot be read"):
        open_history(spark, of_lines(pipeline, tmp_path, "json", multiLine=True))


def test_damaged_compressed_files_are_named(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    content = gzip.compress("\n".join(line(offset) for offset in range(1000)).encode())
    (tmp_path / "a.json.gz").write_bytes(content[: len(content) // 2])
    definition = of_lines(pipeline, tmp_path, "json")
    with pytest.raises(SourceError) as refused:
        inspect_history(spark, definition, open_history(spark, definition))
    assert refused.value.where == f"{tmp_path}/a.json.gz"
    assert refused.value.what.startswith("the file is truncated or damaged")


TEXTS = "carrier STRING, note STRING"
REPEATED = [
    ("plain", b"carrier,note\nx,1\ncarrier,note\ny,2\ncarrier,note\n", {}),
    ("blank lines, a comment", b"\n \n#c\ncarrier,note\nx,1\ncarrier,note\ny,2\ncarrier,note", {"comment": "#"}),
    ("byte-order mark", "\ufeffcarrier,note\nx,1\ncarrier,note\r\ny,2\ncarrier,note\n".encode(), {}),
    ("line breaks", b'carrier,note\nx,"1\ncarrier,note\n"\ncarrier,note\ny,2\ncarrier,note\n', {"multiLine": True}),
]  # fmt: skip


@pytest.mark.parametrize("size", ["large", "small"])
@pytest.mark.parametrize(("content", "options"), [case[1:] for case in REPEATED], ids=[case[0] for case in REPEATED])
def test_a_row_that_reads_like_the_header_is_data(
    spark,
    tmp_path: Path,
    pipeline: MakePipeline,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    options: dict,
    size: str,
) -> None:
    """Each file has a header of its own: the second one is compressed, the third has nothing but it."""
    if size == "large":
        monkeypatch.setattr("spark_jobs.sources.files.lines.WHOLE_BYTES", 0)
    (tmp_path / "a.csv").write_bytes(content)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.csv").write_text("carrier,note\n")
    (tmp_path / "d.csv").write_text("")
    definition = of_lines(pipeline, tmp_path, "csv", schema=TEXTS, header=True, **options)
    history = definition.history.model_copy(update={"position": pipeline(history={"position": {}}).history.position})
    frame = open_history(spark, definition.model_copy(update={"history": history})).frame
    found = sorted(row.carrier for row in frame.where("rw_reason IS NULL").collect())
    assert found == sorted(["x", "carrier", "y", "carrier"] * 2)


def test_the_header_ends_where_the_lines_of_the_file_do(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    lines = [HEADER, f"0,1,1,AA,{BASE}", HEADER, f"0,2,1,AA,{BASE}"]
    (tmp_path / "a.csv").write_text("|".join(lines))
    offsets, bad = split(spark, of_lines(pipeline, tmp_path, "csv", header=True, lineSep="|"))
    assert (offsets, list(bad)) == ([1, 2], [HEADER])


def test_a_row_that_reads_like_the_header_and_is_no_record_goes_to_quarantine(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    (tmp_path / "a.csv").write_text("\n".join([HEADER, f"0,1,1,AA,{BASE}", HEADER, f"0,2,1,AA,{BASE}"]))
    offsets, bad = split(spark, of_lines(pipeline, tmp_path, "csv", header=True))
    assert (offsets, list(bad)) == ([1, 2], [HEADER])


def test_the_header_of_a_file_that_several_tasks_read_is_its_first_line(
    spark, tmp_path: Path, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.sources.files.lines.WHOLE_BYTES", 0)
    rows = [f"x,{number}" if number % 10 else "carrier,note" for number in range(1, 2001)]
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("\n".join(["carrier,note", *rows]) + "\n")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000b")
    try:
        definition = of_lines(pipeline, tmp_path, "csv", schema=TEXTS, header=True)
        history = definition.history.model_copy(
            update={"position": pipeline(history={"position": {}}).history.position}
        )
        frame = open_history(spark, definition.model_copy(update={"history": history})).frame
        assert frame.rdd.getNumPartitions() > 10
        counts = dict(frame.groupBy("carrier").count().collect())
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert counts == {"x": 3600, "carrier": 400}
