"""Iceberg tables in the catalog `rewindow`."""
