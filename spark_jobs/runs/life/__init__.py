"""A run's life: its documents, its states, publication, and recovery of what was interrupted."""
