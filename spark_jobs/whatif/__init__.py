"""Several definitions over one reading of a history, side by side; nothing is published (`rewindow what-if`).

It may import replay, runs, lakehouse and the report's page. Begin with `measure.py`.
"""
