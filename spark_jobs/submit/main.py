"""The application that `spark-submit` starts. In a folder of its own: Python puts a script's folder on its path."""

import sys

# spark-submit puts the jars of its packages there too: Python would look into each for every module.
sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]

from spark_jobs.submit.application import main  # noqa: E402

main()
