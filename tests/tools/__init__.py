"""Tools for developers, which the wheel leaves out: benchmarks, generated pages, drawings, the matrix of versions.

It may import everything; nothing of the product imports it. Begin with `bench/__init__.py`.
"""
