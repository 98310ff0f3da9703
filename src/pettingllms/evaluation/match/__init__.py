"""Matches between a model on a server and any opponent, with logs and a cumulative tally."""
