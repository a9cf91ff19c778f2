"""The quality gate: reviewed expectations over a staged run, before anything is published."""
