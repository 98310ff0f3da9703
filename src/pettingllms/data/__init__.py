"""Data sets in the formats that they are published in, read from files."""
