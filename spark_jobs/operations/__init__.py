"""What operators do beside the runs: maintain, archive, doctor, the history of a window.

It may import everything but the shells (cli, web, orchestration, submit). Begin with `maintain.py`.
"""
