"""The live job's event-time semantics, one record at a time, in pure Python: what Flink does, as its source says it."""
