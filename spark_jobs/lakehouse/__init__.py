"""The Iceberg tables in the catalog `rewindow`: published windows and their revisions, staging, the ledger of runs.

It may import spark, definition and eventtime. Begin with `published_table.py`: its commit is what publishes a run.
"""
