"""Rewindow: replays bounded history through a live job's own event-time logic."""

__version__ = "1.0.0"
LAYOUT = 1
"""The layout of tables and documents. They keep its number; one of another layout is refused."""
