"""What a run does: windows and late records of its range, staged, compared and checked."""
