"""Loaders of published data formats: files in, frozen rows out, errors that name file and row."""
