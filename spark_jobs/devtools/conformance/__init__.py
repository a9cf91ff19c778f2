"""Runs recorded cases through the product's two engines and compares the results with what Flink did.

Begin with `runner.run_cases`. `case` reads a case file, `sequential` and `spark` run it, `compare` finds the first
difference.
"""
