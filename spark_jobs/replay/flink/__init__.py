"""Flink's side of the replay: the timeline of a watermark that follows the records of each partition."""
