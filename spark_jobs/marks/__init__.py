"""What a live job wrote down of its own reading: checkpoints and savepoints, committed offsets.

It may import sources, spark and definition. Begin with `read.py`.
"""
