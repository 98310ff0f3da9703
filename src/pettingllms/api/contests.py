"""`tournament`, `search_team` and `check`: calls that train nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.api.blocking import run_blocking
from pettingllms.api.configs import ConfigLike, make_config
from pettingllms.api.progress import progress_callbacks
from pettingllms.api.user_classes import env_section
from pettingllms.envs import Environment, make_env
from pettingllms.runs.callbacks import Callback

if TYPE_CHECKING:
    from pettingllms.evaluation.team_search import FoundTeam
    from pettingllms.league.standings import Standings
    from pettingllms.preflight.machine import Finding


def tournament(
    env: Any,
    players: Sequence[str],
    *,
    num_rounds: int = 20,
    seed: int = 0,
    temperature: float | None = None,
    keys: Sequence[str] = (),
    callbacks: Sequence[Callback] | None = None,
) -> "Standings":
    """Let all pairs of players meet in every role, and rate them.

    `env` is an environment as in `train`. A player is a scripted player (`minimax`, `minimax~0.3`),
    a run folder, a snapshot `FOLDER@20`, or a server `http://HOST/v1#MODEL`; `NAME=` before it
    renames it. `keys` name environment variables with servers' keys. `temperature` replaces that of
    every policy.
    """
    from pettingllms.evaluation.tournament import Tournament, parse_entries, run_tournament

    made = env if isinstance(env, Environment) else make_env(**env_section(env))
    listener = progress_callbacks(callbacks)
    entries = parse_entries(made, [str(player) for player in players], keys)
    planned = Tournament(made, entries, num_rounds, seed, temperature)
    return run_blocking(
        run_tournament,
        planned,
        notify=listener.on_message,
        progress=lambda done: listener.on_progress(done, planned.num_games),
    )


def search_team(
    executors: str = "noisy",
    *,
    num_episodes: int = 4000,
    max_tokens: int | None = None,
    seed: int = 0,
    keys: Sequence[str] = (),
    callbacks: Sequence[Callback] | None = None,
    **options: Any,
) -> "FoundTeam":
    """Search for the best team of `team_design-v1` by evolution, with frozen executors.

    `executors` is the player of all executors: a scripted player, a run folder, or a server. The
    search uses exactly `num_episodes` episodes, or ends after `max_tokens` tokens. `options` are
    those of the environment. `keys` name environment variables with servers' keys. `to_json()` of
    the result has the best graph as a value for `env.design`, and the curve of the best graph.
    """
    from pettingllms.evaluation.team_search import TeamSearch, search_team

    planned = TeamSearch(
        executors, num_episodes, max_tokens, seed, options=options, keys=tuple(keys)
    )
    listener = progress_callbacks(callbacks)
    return run_blocking(search_team, planned, notify=listener.on_message)


def check(
    config: ConfigLike = None, *, out: str | Path = "runs", **sections: Any
) -> list["Finding"]:
    """Compare what a run needs with this machine, without starting it. A finding has a `level`
    (`ok`, `note` or `problem`), `what` was found, and `advice`. Arguments as in `train`."""
    from pettingllms.preflight.run import inspect

    return inspect(make_config(config, **sections), Path(out))
