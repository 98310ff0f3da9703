"""The team that a designer's reply proposes, for the page to draw: read as data, by the parser of
the environment."""

from dataclasses import asdict
from typing import Any

from pettingllms.envs.tasks.team_design import Limits, TeamDesign, parse_graph
from pettingllms.envs.toolkit.answers import CLOSE, OPEN, BadReply
from pettingllms.types import Episode, Turn

LIMITS = Limits(num_parts=8, max_executors=8, max_rounds=4, max_reads=8)
"""The widest limits that an environment may have; its own decide whether the graph was valid."""


def proposed_team(episode: Episode, turn: Turn) -> dict[str, Any] | None:
    """The graph of a valid proposal; None for any other reply."""
    if episode.env != TeamDesign.id or turn.links.step is None:
        return None
    if episode.steps[turn.links.step].metrics.get("invalid_graph") != 0:
        return None
    _, _, answer = turn.text.rpartition(OPEN)
    try:
        return asdict(parse_graph(answer.partition(CLOSE)[0].strip(), LIMITS))
    except BadReply:
        return None
