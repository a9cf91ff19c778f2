"""Services that Rewindow can start itself, for tests and trials."""
