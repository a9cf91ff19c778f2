"""Runs case files of the golden format through the product's own paths and compares with what Flink did."""
