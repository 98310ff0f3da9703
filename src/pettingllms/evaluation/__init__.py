"""Evaluation beyond a run: players, suites, tournaments and matches."""
