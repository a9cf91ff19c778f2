"""Structured Streaming's side of the replay: everything follows from the micro-batch that has read a record."""
