"""A Kafka topic as a history: its brokers, its offsets, its records."""
