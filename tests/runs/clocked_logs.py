"""One log of records as files, a lake table, a topic, a table with a topic, or a union, night after night."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from tests.kafka import Sent, produce
from tests.runs.small_nights import rows, tables_of
from tests.runs.small_runs import BOUNDED, write

SCHEMA = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"
POSITION = "position: {partition: p, offset: o, arrival: a, arrival_unit: ms, going_back: GOING_BACK}"
FILES = f"kind: files, path: FOLDER/*.json, format: json, {POSITION}"
_numbers = itertools.count()

YAML = """
name: {name}
history: {history}
value: {value}
keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{{watermark}}}
window: {window}
aggregates: {{n: count(*), total: sum(v)}}
quarantine: {{threshold: {threshold}, ahead: 1 h}}
output: {{namespace: clock_tests}}
"""

UNION = """
  kind: union
  of:
    - {{name: one, history: {{{one}}}, {rest}}}
    - {{name: other, history: {{{other}}}, {rest}}}
"""


@dataclass
class ClockedLog:
    """A log that grows, and a pipeline over it. `kind`: files, iceberg, topic, stitched or union."""

    spark: SparkSession
    folder: Path
    kind: str
    broker: KafkaBroker | None = None
    going_back: str = "refuse"
    window: str = "{type: tumbling, size: 1 min}"
    watermark: str = BOUNDED
    threshold: str = "50 %"
    place: str = field(default_factory=lambda: f"clocked_{next(_numbers)}")

    def __post_init__(self) -> None:
        if self.kind in ("topic", "stitched"):
            assert self.broker is not None
            self.broker.create_topic(self.place, 2, {"message.timestamp.type": "CreateTime"})
        if self.kind in ("iceberg", "stitched"):
            self.spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lake")
            self.spark.sql(f"CREATE TABLE rewindow.lake.{self.place} ({SCHEMA}) USING iceberg")
        self.pipeline = self.defined(self.place)

    def put(self, records: Iterable[dict]) -> None:
        """Add records. Those of a stitched history go into the topic, the first time also into the table."""
        records = sorted(records, key=lambda r: (r["p"] or 0, r["o"] or 0))
        if self.kind == "files":
            write(self.folder / self.place, records, f"{next(_numbers):04}.json")
        elif self.kind == "union":
            for number, of in enumerate(("one", "other")):
                own = [r for r in records if max(0, r["p"] or 0) == number]
                (self.folder / self.place).mkdir(exist_ok=True)
                write(self.folder / self.place / of, own, f"{next(_numbers):04}.json")
        if self.kind in ("topic", "stitched"):
            assert self.broker is not None
            sent = [Sent(json.dumps(r), r["p"], timestamp=r["a"]) for r in records]
            produce(self.spark, self.broker.servers, self.place, sent)
        table = f"rewindow.lake.{self.place}"
        if self.kind == "iceberg" or (self.kind == "stitched" and self.spark.table(table).isEmpty()):
            self.spark.createDataFrame(records, SCHEMA).coalesce(1).writeTo(table).append()

    def defined(self, name: str) -> Pipeline:
        position = POSITION.replace("GOING_BACK", self.going_back)
        files = FILES.replace("GOING_BACK", self.going_back).replace("FOLDER", f"{self.folder}/{self.place}")
        servers = self.broker.servers if self.broker else ""
        topic = f'servers: "{servers}", topic: {self.place}, going_back: {self.going_back}'
        fields = {"name": name, "value": f'{{schema: "{SCHEMA}"}}', "window": self.window, "watermark": self.watermark}
        match self.kind:
            case "files":
                history = f"{{{files}}}"
            case "iceberg":
                history = f"{{kind: table, table: rewindow.lake.{self.place}, {position}}}"
            case "topic":
                history = f"{{kind: kafka, {topic}}}"
                fields["value"] = f'{{format: json, schema: "{SCHEMA}"}}'
            case "stitched":
                past = f"{{table: rewindow.lake.{self.place}, {position}}}"
                history = f"{{kind: stitched, past: {past}, recent: {{{topic}}}}}"
                fields["value"] = f'{{format: json, schema: "{SCHEMA}"}}'
            case _:
                inputs = {of: files.replace(self.place, f"{self.place}/{of}") for of in ("one", "other")}
                rest = (
                    f"value: {fields['value']}, keys: {{k: k}}, event_time: {{expression: t, unit: ms}}, "
                    f"watermark: {{{self.watermark}}}"
                )
                history = UNION.format(**inputs, rest=rest)
        text = YAML.format(history=history, threshold=self.threshold, **fields)
        if self.kind == "union":
            dropped = ("value:", "keys:", "event_time:", "watermark:")
            text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(dropped))
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return load_pipeline(path)

    def night(self, now: int, until: int | None = None) -> RunResult:
        return reconcile(self.spark, self.pipeline, NoProgress(), now=clock(now), until=until)

    def ends(self) -> dict[int, int]:
        """The end offsets of the run that was published last."""
        runs = self.spark.table(Tables.of(self.pipeline).runs).where(F.col("pipeline") == self.pipeline.name)
        return dict(runs.where("status = 'published'").orderBy("started_at").tail(1)[0]["as_of"])

    def unusable(self, pipeline: Pipeline | None = None) -> list[tuple[int, str]]:
        """The offsets in quarantine, each with its reason."""
        frame = self.spark.table(Tables.of(pipeline or self.pipeline).quarantine)
        return sorted((row["offset"], row["reason"]) for row in frame.collect())

    def assert_as_one_full_run(self, now: int, as_of: dict[int, int] | None = None) -> None:
        """The tables are those of a full run of the same definition; its clock shows `now`."""
        fresh = self.defined(f"{self.place}_{next(_numbers)}")
        with planned_records(self.spark, fresh, now=clock(now), as_of=as_of) as (plan, records):
            execute(self.spark, fresh, plan, NoProgress(), records=records)
        assert tables_of(self.spark, self.pipeline) == tables_of(self.spark, fresh)
        quarantine = [rows(self.spark.table(Tables.of(one).quarantine)) for one in (self.pipeline, fresh)]
        assert quarantine[0] == quarantine[1]


def clock(at: int):
    return lambda: datetime.fromtimestamp(at / 1000, UTC)
