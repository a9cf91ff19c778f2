"""Event time as Flink has it, one record at a time: watermarks, idleness, window operator, lateness."""
