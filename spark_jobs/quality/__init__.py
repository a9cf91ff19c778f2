"""The quality gate: Great Expectations over the staged windows of a run, before anything is published.

It may import comparison, runs and everything below them. Begin with `gate.py`.
"""
