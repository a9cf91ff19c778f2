"""The replay of Kafka Streams' windowed aggregations on Spark, by the rules of `spark_jobs.eventtime.kafka_streams`."""
