"""A person's records leave what Rewindow keeps: its tables, the folders of runs, and reports (`rewindow forget`).

Begin with `forget.py`. `spark_jobs.sources.erased` keeps them out of the runs that follow.
"""
