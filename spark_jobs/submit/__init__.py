"""What `spark-submit` is given: an entry script, and the package itself."""
