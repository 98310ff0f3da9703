"""Distance from perfect play: the one yardstick of self-play that no opponent can flatter.

A win rate says how a policy does against whoever was at hand. Here the whole game is walked
through, the policy is read at every information state, and what the best opponent there is would
win from it is worked out exactly.
"""

from pettingllms.solve.distance import (
    Policy,
    Table,
    best_reply_value,
    distance,
    lost,
    measure,
    move_regret,
    nash_conv,
    play_value,
    refuse_unread,
)
from pettingllms.solve.tree import InfoState, Node, Solvable, Tree

__all__ = [
    "InfoState",
    "Node",
    "Policy",
    "Solvable",
    "Table",
    "Tree",
    "best_reply_value",
    "distance",
    "lost",
    "measure",
    "move_regret",
    "nash_conv",
    "play_value",
    "refuse_unread",
]
