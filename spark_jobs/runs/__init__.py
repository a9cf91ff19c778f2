"""A run's life in four rooms: `planning`, `night` (what arrived since), `work` (its stages), and `life` (its states).

It may import lakehouse, sources, replay, spark, definition and eventtime; never quality, report or a shell. Begin with
`life/lifecycle.py`, the state machine of a run; `work/backfill.py` shows the stages in their order.
"""
