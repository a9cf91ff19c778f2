"""The report of a run: facts collected with Spark, then a page, a JSON document and JUnit XML drawn without it.

It may import quality, runs and everything below them. Begin with `model.py`: what is in a report.
"""
