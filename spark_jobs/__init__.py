"""Rewindow: replays bounded history through a live job's own event-time logic."""

__version__ = "0.2.0"
