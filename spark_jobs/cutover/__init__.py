"""A new live job takes over from a backfill: where it begins to read, whether that is exact, and how both sides meet.

It may import comparison, runs, engines, lakehouse and what they import. Begin with `planning.py`.
"""
