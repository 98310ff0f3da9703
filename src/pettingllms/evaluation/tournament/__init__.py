"""Tournaments: runs, snapshots, models behind HTTP and scripts, each against each."""

from pettingllms.evaluation.tournament.games import Tournament, hold
from pettingllms.evaluation.tournament.roster import Contestant, read_contestants

__all__ = ["Contestant", "Tournament", "hold", "read_contestants"]
