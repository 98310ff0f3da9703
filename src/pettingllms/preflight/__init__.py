"""Checks before a run starts: of the machine and of a configuration."""
