"""Attempts to get out of the sandbox, as data, and what drives them."""
