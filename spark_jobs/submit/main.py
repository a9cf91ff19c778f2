"""The application that `spark-submit` starts. In a folder of its own: Python puts a script's folder on its path."""

from spark_jobs.application import main

main()
