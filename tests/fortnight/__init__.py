"""Nights in fast motion: a real Airflow, broker and metastore, each killed at random, over a live job that goes on."""
