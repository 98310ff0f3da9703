"""Tournaments: runs, snapshots, models behind HTTP and scripts, each against each."""

from pettingllms.evaluation.tournament.games import Tournament, hold
from pettingllms.evaluation.tournament.roster import TournamentEntry, parse_entries

__all__ = ["Tournament", "TournamentEntry", "hold", "parse_entries"]
