"""Files as a history: JSON and CSV lines, Parquet, Avro, ORC, and those that a query reads itself."""
