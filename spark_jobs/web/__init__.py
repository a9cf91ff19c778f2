"""Pages and JSON about runs, served inside Airflow's API server behind its login and its permissions.

It may import report, runs and orchestration, and starts no Spark. Begin with `app.py`.
"""
