"""Tournaments: runs, snapshots, models behind HTTP and scripts, each against each."""

from pettingllms.tournament.entrants import Entrant, read_entrants
from pettingllms.tournament.play import Tournament, hold

__all__ = ["Entrant", "Tournament", "hold", "read_entrants"]
