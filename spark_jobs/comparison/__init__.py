"""Emitted, faithful, complete: what the live job's table holds, what its rules give, what is true now."""
