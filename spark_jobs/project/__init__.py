"""A new project: a few records of a history are read, a definition is proposed from them, and its files are written.

It may import sources, spark, definition, formatting, settings, eventtime and errors. Begin with `proposal.py`.
"""
