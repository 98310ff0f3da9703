"""Leagues: whom a policy meets, who won, and how good everybody is. Plain data, no engine."""

from pettingllms.config.company import SCRIPT
from pettingllms.league.company import Company, make_company, mean_reward
from pettingllms.league.league import League, make_league
from pettingllms.league.lineups import Lineup, duel, rotated, rotations
from pettingllms.league.payoff import Payoff
from pettingllms.league.pool import Snapshot
from pettingllms.league.ratings import Rating, Ratings

__all__ = [
    "SCRIPT",
    "Company",
    "League",
    "Lineup",
    "Payoff",
    "Rating",
    "Ratings",
    "Snapshot",
    "duel",
    "make_company",
    "make_league",
    "mean_reward",
    "rotated",
    "rotations",
]
