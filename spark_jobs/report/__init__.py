"""The report of a run: facts gathered with Spark, then one page, one JSON document and JUnit XML without it."""
