"""The live job's event-time semantics on Spark, set by set: timeline, window assignment, sessions, engine."""
