"""Fuzzing: inputs that nobody would write, for every part that reads what others have written.

`make fuzz` runs it (`__main__.py`). `kinds.py` lists the kinds of input, `search.py` looks for a fault with Hypothesis,
`batches.py` looks for one among thousands of records in one Spark job.
"""
