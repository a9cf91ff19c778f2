"""The replay engine: what a live job emitted, computed from its history with Spark.

It may import `eventtime`, `definition` and `spark`. Begin with `engine.py`: `Replay` makes the timeline (when the
watermark passed which value: `timeline`; `making` chooses how) and reads windows (`windows`, `sessions`) and
late records off it. `spec.ReplaySpec` describes one replay.
"""
