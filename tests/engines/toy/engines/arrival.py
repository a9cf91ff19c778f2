"""The toy engine towards runs: it records nothing, and waits for no partition."""

from spark_jobs.engines.live_engine import LiveEngine

ENGINE = LiveEngine()
