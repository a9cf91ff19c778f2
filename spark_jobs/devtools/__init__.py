"""Tools for developers and demonstrations: demo, set-up, services, benchmarks, conformance. Not part of the product.

It may import everything; nothing of the product imports it but the commands that start it. Begin with `demo.py`.
"""
