"""Event time as Flink has it, one record at a time: watermarks, idleness, windows, lateness.

Pure Python: it imports nothing of Spark and no other package of this project. It is the specification that the Spark
engine (`spark_jobs.replay`) is tested against, and the engine runs it where set operations cannot decide. Begin with
`job.py` (`LiveJob`): a source (`source`, `generators`, `valve`) in front of a window operator (`operator`, `windows`,
`lateness`). "Rule N" is a golden rule of `tests/golden/flink/README.md`.
"""
