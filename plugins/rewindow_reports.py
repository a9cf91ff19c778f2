"""The Airflow plugin for reports, as a file for Airflow's plugins folder.

An Airflow in which Rewindow is installed by pip does not need it: the package names the same plugin as an entry point,
and this file then adds nothing. It is for an Airflow that only has the package on its path.
"""

from importlib.metadata import entry_points

PLUGIN = "spark_jobs.web.plugin"

if not any(found.module == PLUGIN for found in entry_points(group="airflow.plugins")):
    from spark_jobs.web.plugin import RewindowReports  # noqa: F401 - Airflow takes the classes of this module
