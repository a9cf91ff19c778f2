"""Event time of three engines, one record at a time: watermarks, windows, lateness; a folder for each engine.

Pure Python: it imports nothing of Spark and no other package of this project. It is the specification that the Spark
engine (`spark_jobs.replay`) is tested against, and the engine runs it where set operations cannot decide. Begin with
`flink/source.py`, which is in front of a window operator (`operator`, `lateness`) and the windows of `windows.py`;
`tests/sequential` puts whole jobs together. "Rule N" is a golden rule of `tests/golden/flink/README.md`.
"""
