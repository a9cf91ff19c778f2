"""What `rewindow demo`, `up` and `kafka-up` start: a broker with the sample's records, an Airflow, the documents' site.

It may import everything but `cli` and the tools for developers. Begin with `run.py`.
"""
