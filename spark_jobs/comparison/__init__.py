"""Compares what the live job emitted with its faithful replay and with the complete values: `rewindow compare`.

It may import runs and everything below it, never quality, report or a shell. Begin with `compare.py`.
"""
