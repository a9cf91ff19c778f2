"""Runs recorded cases through the product's two engines and compares the results with what the live engine did.

Begin with `formats.py`. `case` reads a case file,
`sequential` and `spark` run it, `compare` finds the first difference.
"""
