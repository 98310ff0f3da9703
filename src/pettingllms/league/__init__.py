"""Leagues: matchmaking, results and ratings of players, as plain data without engines."""

from pettingllms.config.co_players import SCRIPT
from pettingllms.league.co_players import CoPlayers, make_co_players, mean_reward
from pettingllms.league.league import League, make_league
from pettingllms.league.payoff import Assignment, Payoff, duel, rotated, rotations
from pettingllms.league.pool import Snapshot
from pettingllms.league.ratings import Rating, Ratings

__all__ = [
    "SCRIPT",
    "Assignment",
    "CoPlayers",
    "League",
    "Payoff",
    "Rating",
    "Ratings",
    "Snapshot",
    "duel",
    "make_co_players",
    "make_league",
    "mean_reward",
    "rotated",
    "rotations",
]
