"""Every move of a finished game and the state after it, as text.

Environments are pure state machines, so a recorded game is stepped again from its seed. What the
roles see differently is shown for each.
"""

from collections.abc import Iterator

from rich.text import Text

from pettingllms.evaluation.players import Env
from pettingllms.types import Episode


def can_show_moves(env: Env) -> bool:
    """Whether games can be stepped again at once: no programs or servers are called again."""
    return env.can_fork and not env.blocking


def moves_of(env: Env, episode: Episode) -> Iterator[tuple[str, str]]:
    """Title and text of the start state, and of each move and the state after it."""
    state = env.reset(episode.task, episode.seed)
    yield "start", _shown(env, state)
    for number, at in enumerate(episode.main_branch(), 1):
        step = episode.steps[at]
        turns = [episode.turns[turn] for turn in step.turns]
        replies = {turn.role: turn.text for turn in turns}
        if set(replies) != set(env.acting(state)):
            return  # a failed turn ended the game
        state = env.step(state, replies).state
        said = "\n".join(f"{role}: {text}" for role, text in replies.items())
        yield f"move {number}", f"{said}\n\n{_shown(env, state)}"


def _shown(env: Env, state: object) -> str:
    views: dict[str, list[str]] = {}
    for role in env.roles:
        views.setdefault(Text.from_markup(env.draw(state, role)).plain, []).append(role)
    if len(views) == 1:
        return next(iter(views))
    return "\n\n".join(f"{' and '.join(roles)} see:\n{view}" for view, roles in views.items())
