"""Tables as histories: Iceberg, Delta and Hive, the archive of a topic, and what became of a table since."""
