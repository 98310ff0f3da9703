"""Leagues: whom a policy meets, who won, and how good everybody is. Plain data, no engine."""

from pettingllms.league.league import SCRIPT, League, make_league
from pettingllms.league.payoff import Payoff
from pettingllms.league.pool import Snapshot
from pettingllms.league.ratings import Rating, Ratings
from pettingllms.league.seating import Lineup, duel, rotated, rotations

__all__ = [
    "SCRIPT",
    "League",
    "Lineup",
    "Payoff",
    "Rating",
    "Ratings",
    "Snapshot",
    "duel",
    "make_league",
    "rotated",
    "rotations",
]
