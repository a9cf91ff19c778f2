"""What Kafka Streams' windowed aggregations do, one record at a time, after its own source (release 4.1).

The words are Kafka Streams': a task reads one partition and has its own stream time, a window is late by its grace
period, a state store forgets by its retention. The rules and their numbers are in `tests/golden/kstreams/README.md`.
"""
