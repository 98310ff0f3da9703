"""Whom a suite is about: a scripted player, a model behind a server, a model, or a run's policies.

Each becomes one thing: who sits down when a role of some environment is to be played. So a run that
was trained on one environment can be asked about any other.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pettingllms.cluster.inference_team import playing_team
from pettingllms.config import RunConfig, apply_overrides, parse_config
from pettingllms.errors import ConfigError, nearest
from pettingllms.evaluation.players import (
    Env,
    PlayerSpec,
    ServerOptions,
    parse_address,
    parse_keys,
    server_player,
    with_model,
)
from pettingllms.models import find_model
from pettingllms.policies.files import Saved
from pettingllms.rollout import Player
from pettingllms.rollout.scripted import scripted_player
from pettingllms.training.evaluate import start_weights

PlayerFor = Callable[[Env, str], Player]
"""Who plays a role of an environment."""
MODEL = "model"
"""What the policy of a bare model is called."""


@dataclass(frozen=True, slots=True)
class EvaluatedPlayer:
    """Whom the numbers are about."""

    kind: Literal["player", "server", "model", "run"]
    name: str
    """As the table has it."""
    fingerprint: str
    """What it is made of, as a hash: results of another subject are not gone on with."""
    player_spec: PlayerSpec | None = None
    """The server."""
    options: ServerOptions = field(default_factory=ServerOptions)
    """How the server is asked."""
    config: RunConfig | None = field(default=None, repr=False)
    """Of the engines that a run or a model needs."""
    saved: Saved = field(default_factory=dict, repr=False)
    """Weights of the run."""
    policy: str = ""
    """Who plays roles that the run does not have."""

    def policy_of(self, role: str) -> str:
        """The run's policy for a role: its own, else the one that was named, the only one that
        learnt, or the run's first."""
        assert self.config is not None  # noqa: S101 - asked of runs and models alone
        trained = sorted(self.config.trained_policies())
        only = trained[0] if len(trained) == 1 else next(iter(self.config.roles.values()))
        return self.config.roles.get(role) or self.policy or only


def evaluated_script(name: str) -> EvaluatedPlayer:
    """A scripted player, of whatever environment is played."""
    return EvaluatedPlayer("player", name, _hash("player", name))


def evaluated_server(address: str, keys: Sequence[str], temperature: float) -> EvaluatedPlayer:
    """A model behind an OpenAI-compatible server; it is asked for its name if that is not given."""
    player_spec = parse_address(address)
    options = ServerOptions(parse_keys(keys, [player_spec]), temperature)
    player_spec = with_model(player_spec, options)
    fingerprint = _hash("server", player_spec.url, player_spec.name, temperature)
    return EvaluatedPlayer("server", player_spec.name, fingerprint, player_spec, options)


def evaluated_model(name: str, overrides: Sequence[str]) -> EvaluatedPlayer:
    """A model by its folder or name, as it is."""
    folder = find_model(name)
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {MODEL: {"kind": "frozen", "model": str(folder)}},
    }
    problems = apply_overrides(data, overrides)
    config = parse_config(data, name, problems)
    files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(folder.iterdir())]
    fingerprint = _hash("model", str(folder), files, sorted(overrides))
    return EvaluatedPlayer("model", name, fingerprint, config=config)


def evaluated_run(place: Path, config: RunConfig, saved: Saved, policy: str) -> EvaluatedPlayer:
    """The policies of a run with the weights of a checkpoint, or of a configuration."""
    if policy and policy not in config.policies:
        raise ConfigError(
            f"--policy {policy}", [f"{place} has none; {nearest(policy, config.policies)}"]
        )
    saved = saved or start_weights(config)
    weights = {
        name: {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
        for name, files in saved.items()
    }
    fingerprint = _hash("run", config.model_dump_json(), weights, policy)
    return EvaluatedPlayer(
        "run", place.stem or str(place), fingerprint, config=config, saved=saved, policy=policy
    )


@asynccontextmanager
async def opened(
    evaluated: EvaluatedPlayer, notify: Callable[[str], None]
) -> AsyncIterator[PlayerFor]:
    """Who plays which role, while engines run and connections are open."""
    async with AsyncExitStack() as stack:
        if evaluated.config is not None:
            notify(f"starting the engines of {evaluated.name}")
            playing = playing_team(evaluated.config, evaluated.saved, notify)
            team = await stack.enter_async_context(playing)
            yield lambda env, role: team.player(env, evaluated.policy_of(role), None, frozenset())
        elif evaluated.player_spec is not None:
            player = server_player(stack, evaluated.player_spec, evaluated.options)
            yield lambda _env, _role: player
        else:
            yield lambda env, _role: scripted_player(env, evaluated.name)


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
