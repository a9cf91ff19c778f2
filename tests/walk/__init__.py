"""Random walks through the lives of runs: a history changes, runs follow, and each is compared with the truth.

A walk (`plan.Walk`) is plain data: a kind of history, a shape of pipeline, and a list of steps. `log` knows every
record that its steps write, `truth` what windows these records make, `places` writes them to real files, tables and
topics, and `walker` carries the steps out and compares. `known` has walks that once went wrong, `drawn` draws others
from a seed, `shrunk` finds the shortest part of a walk that still fails. `python -m tests.walk --help` says how to take
any number of steps.
"""
