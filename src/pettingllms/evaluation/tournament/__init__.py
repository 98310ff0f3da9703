"""Round-robin tournaments between runs, snapshots, models on servers and scripted players."""

from pettingllms.evaluation.tournament.games import Tournament, run_tournament
from pettingllms.evaluation.tournament.roster import TournamentEntry, parse_entries

__all__ = ["Tournament", "TournamentEntry", "parse_entries", "run_tournament"]
