"""Corrections: what the readers of the live job's output get after a run is published, exactly once per revision.

It may import comparison, runs and everything below them. Begin with `delivery.py`; `due.py` says what is to be
delivered, and one module for each kind of destination how it takes that.
"""
