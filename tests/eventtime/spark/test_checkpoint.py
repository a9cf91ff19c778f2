"""The files of a checkpoint: every version that Spark has written, what is passed over, what is refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from spark_jobs.eventtime.spark.batches import batches_of
from spark_jobs.eventtime.spark.checkpoint import (
    CheckpointError,
    CommitEntry,
    FileOffset,
    KafkaOffsets,
    OffsetLogEntry,
    is_checkpoint_file,
    read_checkpoint,
)
from tests.sequential.spark import batch_of_offset

METADATA = '{"batchWatermarkMs":5,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"2"}}'
ENTRY = OffsetLogEntry(
    3,
    watermark=5,
    timestamp=9,
    offsets={"0": KafkaOffsets({"t": {0: 4, 1: 7}}), "1": FileOffset(2), "2": None},
    conf={"spark.sql.shuffle.partitions": "2"},
)


def test_an_entry_of_version_1_has_a_line_for_each_source_in_the_order_of_the_plan() -> None:
    text = f'v1\n{METADATA}\n{{"t":{{"1":7,"0":4}}}}\n{{"logOffset":2}}\n-'
    assert read_checkpoint({"offsets/3": text}.items()).offsets == {3: ENTRY}


def test_an_entry_of_version_2_names_its_sources_in_any_order() -> None:
    text = f'v2\n{METADATA}\n2:-\n1:{{"logOffset":2}}\n0:{{"t":{{"0":4,"1":7}}}}\n'
    assert read_checkpoint({"offsets/3": text}.items()).offsets == {3: ENTRY}


def test_a_source_of_version_2_can_have_a_name_and_its_offset_has_colons() -> None:
    text = f'v2\n{METADATA}\norders:{{"t:x":{{"0":4}}}}'
    assert read_checkpoint({"offsets/3": text}.items()).offsets[3].offsets == {"orders": KafkaOffsets({"t:x": {0: 4}})}


def test_unknown_fields_are_passed_over() -> None:
    text = 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":9,"conf":{},"operators":{"a":1}}\n-'
    assert read_checkpoint({"offsets/0": text}.items()).offsets[0].watermark == 5


@pytest.mark.parametrize(
    ("text", "watermark"),
    [
        ('v1\n{"nextBatchWatermarkMs":7}', 7),
        ('v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":{"0":{"default":["a"]}}}}', 7),
        ('v3\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{},"stateSchemaIds":{}}', 7),
        ("v1\n{}", 0),
    ],
)
def test_commits_of_every_version_have_the_next_watermark(text: str, watermark: int) -> None:
    assert read_checkpoint({"commits/3": text}.items()).commits == {3: CommitEntry(3, watermark)}


def test_checksums_temporary_files_and_state_are_passed_over() -> None:
    names = ["offsets/.3.crc", "offsets/3.crc", "commits/.3.4f1e.tmp", "state/0/0/1.delta", "sources/0/.0.crc", "_x"]
    assert not any(map(is_checkpoint_file, names))
    assert read_checkpoint(dict.fromkeys(names, "damaged").items()).offsets == {}


def test_of_the_batches_of_months_numbers_are_kept_and_no_documents() -> None:
    """A batch takes some 80 bytes here, with two partitions; its documents would take twenty times as much."""

    def files(count: int) -> Iterator[tuple[str, str]]:
        for batch in range(count):
            metadata = f'{{"batchWatermarkMs":{batch},"batchTimestampMs":{batch},"conf":{{"a":"b"}}}}'
            yield f"offsets/{batch}", f'v1\n{metadata}\n{{"t":{{"0":{2 * batch + 1},"1":{batch}}}}}'
            yield f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":7}'

    batches_of(read_checkpoint(files(2)))  # what is imported then does not count
    count = 5_000
    tracemalloc.start()
    batches = batches_of(read_checkpoint(files(count)))
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 200 * count and most < 500 * count
    assert len(batches.batches) == count and batch_of_offset(batches, "0", "t", 0, 2 * count - 2) == count - 1


def test_of_a_batch_that_the_archive_has_too_the_checkpoint_s_file_counts() -> None:
    def log(batch: int, watermark: int, topic: str) -> tuple[str, str]:
        metadata = f'{{"batchWatermarkMs":{watermark},"batchTimestampMs":1,"conf":{{"of":"{topic}"}}}}'
        return f"offsets/{batch}", f'v1\n{metadata}\n{{"{topic}":{{"0":{watermark}}}}}'

    archived = read_checkpoint([log(1, 10, "t"), log(0, 5, "t"), ("commits/0", 'v1\n{"nextBatchWatermarkMs":1}')])
    known = archived.then(read_checkpoint([log(2, 30, "u"), log(1, 20, "u"), ("metadata", '{"id":"q"}')]))
    assert known.query == "q" and list(known.commits) == [0]
    assert [(entry.batch, entry.watermark, entry.conf["of"]) for entry in known.offsets.values()] == [
        (0, 5, "t"),
        (1, 20, "u"),
        (2, 30, "u"),
    ]
    assert known.offsets[1].offsets == {"0": KafkaOffsets({"u": {0: 20}})}
    assert 3 not in known.offsets and 1 not in known.commits


def test_the_first_offsets_of_kafka_begin_with_a_nul_byte() -> None:
    checkpoint = read_checkpoint([("sources/0/0", '\0v1\n{"t":{"0":3}}')])
    assert checkpoint.first_offsets == {"0": KafkaOffsets({"t": {0: 3}})}


def test_a_compact_entry_repeats_all_files_before_it_and_counts_once() -> None:
    def line(path: str, entry: int) -> str:
        return f'{{"path":"{path}","timestamp":1,"batchId":{entry}}}'

    files = {
        "sources/0/8": "v1\n" + line("a", 8),
        "sources/0/9.compact": "v1\n" + "\n".join([line("first", 0), line("a", 8), line("b", 9)]),
        "sources/0/9": "v1\n" + line("b", 9),
        "sources/0/10": "v1\n" + line("c", 10),
    }
    read = read_checkpoint(files.items()).files["0"]
    assert [(file.path, file.entry) for file in read] == [("first", 0), ("a", 8), ("b", 9), ("c", 10)]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("offsets/0", f"v3\n{METADATA}\n-", "offsets/0: version 3 is unknown. Versions 1, 2 can be read"),
        ("commits/0", 'v4\n{"nextBatchWatermarkMs":7}', "commits/0: version 4 is unknown"),
        ("offsets/0", "", "offsets/0: its first line is no version"),
        ("offsets/0", "v1\n", "offsets/0: it has no line of metadata"),
        ("offsets/0", 'v1\n{"batchWatermarkMs":', "offsets/0: not JSON"),
        (
            "offsets/0",
            'v1\n{"batchTimestampMs":1}\n-',
            "offsets/0: batchWatermarkMs is not a whole number of 64 bits: None",
        ),
        (
            "commits/0",
            f'v1\n{{"nextBatchWatermarkMs":{2**63}}}',
            "commits/0: nextBatchWatermarkMs is not a whole number of",
        ),
        ("commits/0", 'v1\n{"nextBatchWatermarkMs":NaN}', "commits/0: nextBatchWatermarkMs is not a whole number of"),
        ("offsets/0", f'v1\n{METADATA}\n{{"logOffset":{10**30}}}', "offsets/0: logOffset is not a whole number of"),
        ("offsets/0", f'v1\n{METADATA}\n{{"t":{{"0":{2**63}}}}}', "offsets/0: an offset is of no known source"),
        ("offsets/0", f'v1\n{METADATA}\n{{"t":{{"0":Infinity}}}}', "offsets/0: an offset is of no known source"),
        ("offsets/0", f'v1\n{METADATA}\n{{"t":{{"0":1.5}}}}', "offsets/0: an offset is of no known source"),
        ("offsets/0", f'v1\n{METADATA}\n{{"t":{{"{2**31}":1}}}}', "offsets/0: an offset is of no known source"),
        (
            "offsets/0",
            "v1\n" + METADATA.replace("{}", "[1]").replace('{"spark.sql.shuffle.partitions":"2"}', "[1]"),
            "offsets/0: conf is not a JSON object",
        ),
        ("offsets/0", f"v1\n{METADATA}\n{'[' * 100_000}", "offsets/0: not JSON"),
        (f"offsets/{10**30}", f"v1\n{METADATA}", "its name is no number of 64 bits"),
        (f"commits/{2**63}", "v1\n{}", "its name is no number of 64 bits"),
        (f"sources/0/{'9' * 5000}", "v1\n", "its name is no number of 64 bits"),
        ("offsets/0", f"v1\n{METADATA}\n42", "offsets/0: not a JSON object: '42'"),
        ("offsets/0", f'v1\n{METADATA}\n{{"shard":"x"}}', "offsets/0: an offset is of no known source"),
        ("offsets/0", f"v2\n{METADATA}\n-", "offsets/0: a line has no source id"),
        ("sources/0/1", "v1\n{}", "sources/0/1: a line names no file"),
        ("metadata", "damaged", "metadata: not JSON"),
    ],
)
def test_a_file_that_spark_does_not_write_is_refused_with_its_name(name: str, text: str, what: str) -> None:
    with pytest.raises(CheckpointError, match=what.replace("(", r"\(")):
        read_checkpoint({name: text}.items())
