"""A run's life: plan, stages, documents, status, publication, recovery, nights.

It may import lakehouse, sources, replay, spark, definition and eventtime; never quality, report or a shell. Begin with
`lifecycle.py`, the state machine of a run; `backfill.py` shows the stages in their order.
"""
