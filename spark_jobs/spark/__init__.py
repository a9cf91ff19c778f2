"""Spark itself: the JVM, the session, the catalog, parallel jobs, cached frames, and errors that come out of Java.

It is the only place that touches PySpark's private side, and imports only errors, formatting and settings. Begin with
`session.py`.
"""
