"""What `spark-submit` starts: an entry script that does one step of a run, and the package as an archive.

It may import runs, quality, report and everything below them. Begin with `application.py`.
"""
