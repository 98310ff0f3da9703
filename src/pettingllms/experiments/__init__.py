"""Reproducible experiments: a folder defines all runs, from the base model to table and figure."""
