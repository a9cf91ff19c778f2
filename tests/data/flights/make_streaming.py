"""Records what a real Structured Streaming query makes of the flights sample: `tests/data/flights/streaming/`.

`python -m tests.data.flights.make_streaming`. The query reads the topic in batches of 2,000 records. Its checkpoint
is kept with two changes: of the settings only those that decide something, and as the time of a batch a second after
its last record has arrived, as if the query had run beside the producer.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.demo.kafka_sample import SAMPLE, TOPIC, load_flights
from spark_jobs.lakehouse.checkpoint_archive import shortened
from spark_jobs.sources.checkpoint import checkpoint_files, texts_of
from spark_jobs.spark.session import spark_session

TARGET = SAMPLE.parent / "streaming"
_RECORDS = 2000
_DELAY_MS = 1000


def recorded(spark: SparkSession, servers: str, checkpoint: Path) -> pa.Table:
    """The rows of the query, with the batch of each."""
    made: list[pa.Table] = []

    def write(batch: DataFrame, number: int) -> None:
        made.append(batch.withColumn("batch", F.lit(number)).toArrow())

    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"})
        .option("maxOffsetsPerTrigger", str(_RECORDS))
        .load()
    )
    flight = F.from_json(F.col("value").cast("string"), "sched_dep STRING, distance BIGINT")
    (
        records.select(F.col("key").cast("string").alias("carrier"), flight.alias("f"))
        .select("carrier", F.to_timestamp("f.sched_dep").alias("at"), "f.distance")
        .withWatermark("at", "30 minutes")
        .groupBy("carrier", F.window("at", "1 hour").alias("w"))
        .agg(
            F.count("*").alias("flights"),
            F.sum("distance").alias("distance"),
            F.min("distance").alias("shortest"),
            F.max("distance").alias("longest"),
            F.sum(F.col("distance") * 1.609344).alias("kilometres"),
        )
        .select(F.col("w.start").alias("window_start"), "*")
        .drop("w")
        .select("carrier", "window_start", "flights", "distance", "shortest", "longest", "kilometres")
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
        .awaitTermination()
    )
    return pa.concat_tables(made).sort_by(
        [("batch", "ascending"), ("window_start", "ascending"), ("carrier", "ascending")]
    )


def kept(files: dict[str, str]) -> dict[str, str]:
    """The files of the checkpoint as they are kept."""
    events = pq.read_table(SAMPLE, columns=["partition", "offset", "arrival"])
    found: dict[str, str] = {}
    for name, text in sorted(files.items()):
        if not name.startswith("offsets/"):
            found[name] = text
            continue
        version, metadata, ends = shortened(name, text).split("\n")
        read = (
            (pc.field("partition") == int(partition)) & (pc.field("offset") < end)
            for partition, end in json.loads(ends)[TOPIC].items()
        )
        arrivals = [max(events.filter(one)["arrival"].cast("int64").to_pylist(), default=0) for one in read]
        fields = json.loads(metadata) | {"batchTimestampMs": max(arrivals) + _DELAY_MS}
        found[name] = "\n".join([version, json.dumps(fields, separators=(",", ":")), ends])
    return found


def main() -> None:
    """Write the folder anew."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "kafka") as broker:
        load_flights(broker)
        spark = spark_session("streaming sample", home=Path(folder))
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", 10_000)
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        rows = recorded(spark, broker.servers, Path(folder) / "checkpoint")
        listed = checkpoint_files(spark, str(Path(folder) / "checkpoint"))
        files = kept(dict(texts_of(spark, listed)))
        spark.stop()
    shutil.rmtree(TARGET, ignore_errors=True)
    for name, text in files.items():
        (TARGET / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (TARGET / "checkpoint" / name).write_text(text)
    pq.write_table(rows, TARGET / "rows.parquet", compression="zstd")
    print(f"{TARGET}: {rows.num_rows:,} rows, {sum(n.startswith('offsets/') for n in files)} batches")


if __name__ == "__main__":
    main()
