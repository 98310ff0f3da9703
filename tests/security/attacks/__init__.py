"""Attempts to escape from the sandbox, as data, and their driver."""
