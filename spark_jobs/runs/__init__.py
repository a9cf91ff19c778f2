"""A run's life: request, plan, one function for each step, status, documents, publication, nights.

It may import lakehouse, sources, replay, spark, definition and eventtime; never quality, report or a shell. Begin with
`plan.py`: it decides, and everything after it only carries the plan out.
"""
