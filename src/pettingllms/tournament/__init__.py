"""Tournaments: runs, snapshots, models behind HTTP and scripts, each against each."""

from pettingllms.tournament.contestants import Contestant, read_contestants
from pettingllms.tournament.play import Tournament, hold

__all__ = ["Contestant", "Tournament", "hold", "read_contestants"]
