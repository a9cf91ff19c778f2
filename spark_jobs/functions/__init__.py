"""The live job's own functions: classes of its jars and Python code, called in the SQL of a definition.

Begin with `prepared.py`. It may import `definition` and `spark`; replay and sources use it.
"""
