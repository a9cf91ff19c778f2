"""The options of a script's tables that no part of a definition stands for: what each means for the results."""

from __future__ import annotations

from spark_jobs.project.flink_script import SourceTable

_INCLUDE = "value.fields-include"
_WITHOUT_KEY = "EXCEPT_KEY"
_NONE = "has no counterpart"
_SAME = "does not change results"


def fields_of_key(table: SourceTable) -> frozenset[str]:
    """The columns of a topic's table that are in the record's key only, not in its value."""
    include, names = table.options.get(_INCLUDE), table.options.get("key.fields")
    if include is None or names is None or include.text.upper() != _WITHOUT_KEY:
        return frozenset()
    return frozenset(name.strip() for name in names.text.split(";"))


def why_left_out(table: SourceTable, name: str) -> str:
    """What it means that this option of a source table is in no definition."""
    if name.startswith("sink."):
        return f"{_SAME}: it is about writing"
    if table.options["connector"].text != "kafka":
        return _NONE
    if name == "properties.group.id":
        return f"{_SAME}: a replay joins no group"
    if name == "scan.parallelism":
        return "how many subtasks the source has: say in watermark.subtasks which partitions each one reads"
    if name.startswith("scan.topic-partition-discovery"):
        return "when the job finds new partitions: name in watermark.partitions those that the topic had at its start"
    if name == _INCLUDE or name.startswith("key."):
        return _why_key(name, ", ".join(sorted(fields_of_key(table))))
    return _NONE


def _why_key(name: str, in_key: str) -> str:
    if not in_key:
        return f"{_SAME}: the value has these fields too, and they come first"
    if name == "key.fields":
        return (
            f"CHECK: {in_key}: only in the record's key, so not in value.schema. "
            "Where a query uses them, write an expression over the column `key`, which is the key's text"
        )
    return f"{_NONE}: fields of the record's key are not decoded, see 'key.fields'"


def of_sink(table: SourceTable) -> tuple[str, str]:
    """What a sink table has besides columns, without values that may be secret; and why it is in no definition."""
    connector = table.options.get("connector")
    named = [f"'connector' = '{connector.text}'"] if connector is not None else []
    named += [f"'{name}'" for name in table.options if name != "connector"]
    named += [what for what, _ in table.left_out]
    named += [f"column {column.name} AS {column.computed.text}" for column in table.columns if column.computed]
    named += [f"column {column.name} METADATA" for column in table.columns if column.metadata]
    named += [table.watermark.text] if table.watermark is not None else []
    why = (
        f"{_NONE}: results go to Iceberg tables. "
        "To compare with what the job wrote here, name these files, table or topic under `live:`"
    )
    return f"sink {table.name}: {', '.join(named) or 'its options'}", why
