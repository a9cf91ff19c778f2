"""A person's records leave what Rewindow keeps: its tables, the folders of runs, and reports (`rewindow forget`).

It may import operations, the report, runs and lakehouse. Begin with `forget.py`. `spark_jobs.sources.erased` keeps
them out of the runs that follow.
"""
