"""Matches: games of a model behind a server against anybody, with logs and a tally that grows."""
