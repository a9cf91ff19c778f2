"""Live jobs record by record, of the operators of `spark_jobs.eventtime`: the Spark engine is tested against them."""
