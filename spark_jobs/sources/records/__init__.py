"""From what a history holds to canonical records: place, decode, look up, key, time."""
