"""The section `deduplicate`: in the words of each engine, and what does not go with it refused in one sentence."""

from __future__ import annotations

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deduplicate import DeduplicateKind
from spark_jobs.errors import DefinitionError
from tests.definition.texts import BASE, FLINK, SPARK, TUMBLING, loaded

STREAMS = BASE + "engine: kafka_streams\nwatermark: {grace: 0}\nallowed_lateness: 0\n" + TUMBLING


def test_each_engine_has_its_own_kind_where_none_is_named(tmp_path) -> None:
    def of(text: str) -> Pipeline:
        return loaded(tmp_path, text)

    spark, flink = of(SPARK + TUMBLING + "deduplicate: {by: id}\n"), of(FLINK + "deduplicate: {by: [a, b]}\n")
    assert spark.deduplicate is not None and spark.deduplicate.kind is DeduplicateKind.WITHIN_WATERMARK
    assert flink.deduplicate is not None and flink.deduplicate.kind is DeduplicateKind.ROW_TIME
    assert (spark.deduplicate.by, flink.deduplicate.by) == (("id",), ("a", "b"))
    timed = of(FLINK + "deduplicate: {by: id, kind: processing_time, within: 1 h}\n").deduplicate
    assert timed is not None and timed.within == 3_600_000
    assert '"deduplicate"' not in of(FLINK).to_canonical_json()
    assert of(FLINK).definition_hash != flink.definition_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STREAMS + "deduplicate: {by: id}\n", "deduplicate: does not belong to engine `kafka_streams`"),
        (
            FLINK + "deduplicate: {by: id, kind: drop_duplicates}\n",
            "deduplicate.kind: does not belong to engine `flink`",
        ),
        (SPARK + TUMBLING + "deduplicate: {by: id, kind: row_time}\n", "deduplicate.kind: does not belong to engine"),
        (SPARK + TUMBLING + "deduplicate: {by: id, within: 1 h}\n", "Spark holds an id for `watermark.delay`"),
        (FLINK + "deduplicate: {by: id, update_type: on_read_and_write}\n", "belongs to kind processing_time"),
        (FLINK + "deduplicate: {by: id}\nallowed_lateness: 1 h\n", "allowed_lateness: does not go with `deduplicate`"),
        (FLINK.replace("size: 1 h", "gap: 1 h").replace("tumbling", "session") + "deduplicate: {by: id}\n", "sessions"),
        (FLINK + "deduplicate: {by: []}\n", "deduplicate.by"),
        (
            SPARK.replace("checkpoint: /c", "checkpoint: /c, allow_multiple: false")
            + TUMBLING
            + "deduplicate: {by: id}\n",
            "watermark.allow_multiple: does not go with `deduplicate`",
        ),
        (
            SPARK + TUMBLING + "deduplicate: {by: id, delays: [{first_batch: 3, delay: 1 min}]}\n",
            "deduplicate.delays: do not ascend from batch 0",
        ),
        (
            FLINK.replace('{kind: kafka, servers: "k:9092", topic: orders}', "{kind: files, path: x, format: json}")
            + "deduplicate: {by: id, kind: processing_time}\n",
            "deduplicate: needs `history.position.partition`",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, text)
    assert message in str(refused.value)
