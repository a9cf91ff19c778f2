"""Pages and JSON about runs, served inside Airflow's API server behind its login and its permissions."""
