"""Event time as Spark Structured Streaming has it: micro-batches, and one watermark for each of them.

Pure Python. A query's checkpoint says which micro-batch read each record, and with which watermark the batch ran
(`checkpoint`, `batches`). `tests/sequential/spark.py` runs the records of the batches through the operators of a query
(`aggregation`, `sessions`). `watermark` derives the watermarks where no checkpoint has them. "Spark rule N" is a rule
of `tests/golden/spark/README.md`.
"""
