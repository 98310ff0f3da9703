"""The player that a suite evaluates: a script, a model on a server, a local model, or a run.

Each provides a player for any role of any environment, so a run can be evaluated on environments
that it was not trained on.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pettingllms.cluster.inference_team import inference_team
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
from pettingllms.evaluation.suites.suite import hash_of
from pettingllms.models import find_model
from pettingllms.policies.files import Saved, read_content
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.training.initial_weights import initial_weights

PlayerFor = Callable[[Env, str], Player]
"""The player for a role of an environment."""
MODEL = "model"
"""Policy name for a local model."""


@dataclass(frozen=True, slots=True)
class EvaluatedPlayer:
    """The player under evaluation."""

    kind: Literal["player", "server", "model", "run"]
    name: str
    """Name in the table."""
    fingerprint: str
    """Hash of the weights and settings; results of another player are not reused."""
    spec: PlayerSpec | None = None
    """The server and model."""
    options: ServerOptions = field(default_factory=ServerOptions)
    """How the server is called."""
    config: RunConfig | None = field(default=None, repr=False)
    """Engine config for a run or a local model."""
    saved: Saved = field(default_factory=dict, repr=False)
    """Weights of the run."""
    policy: str = ""
    """Policy for roles that the run does not have."""

    def policy_for(self, role: str) -> str:
        """The run's policy for a role: the mapped one, else `policy`, else the only trained policy,
        else the run's first policy."""
        assert self.config is not None  # noqa: S101 - called for runs and models only
        trained = sorted(self.config.trained_policies())
        only = trained[0] if len(trained) == 1 else next(iter(self.config.roles.values()))
        return self.config.roles.get(role) or self.policy or only


def evaluated_script(name: str) -> EvaluatedPlayer:
    """A scripted player of each environment."""
    return EvaluatedPlayer("player", name, hash_of("player", name))


def evaluated_server(address: str, keys: Sequence[str], temperature: float) -> EvaluatedPlayer:
    """A model on an OpenAI-compatible server, which is queried for its model if none is named."""
    spec = parse_address(address)
    options = ServerOptions(parse_keys(keys, [spec]), temperature)
    spec = with_model(spec, options)
    fingerprint = hash_of("server", spec.url, spec.name, temperature)
    return EvaluatedPlayer("server", spec.name, fingerprint, spec, options)


def evaluated_model(name: str, overrides: Sequence[str]) -> EvaluatedPlayer:
    """A local model by folder or name, without training."""
    folder = find_model(name)
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {MODEL: {"kind": "frozen", "model": str(folder)}},
    }
    problems = apply_overrides(data, overrides)
    config = parse_config(data, name, problems)
    files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(folder.iterdir())]
    fingerprint = hash_of("model", str(folder), files, sorted(overrides))
    return EvaluatedPlayer("model", name, fingerprint, config=config)


def evaluated_run(place: Path, config: RunConfig, saved: Saved, policy: str) -> EvaluatedPlayer:
    """The policies of a run with the weights of a checkpoint, or a config's initial weights."""
    if policy and policy not in config.policies:
        raise ConfigError(
            f"--policy {policy}", [f"not in {place}; {nearest(policy, config.policies)}"]
        )
    saved = saved or initial_weights(config)
    weights = {
        name: {
            file: hashlib.sha256(read_content(content)).hexdigest()
            for file, content in files.items()
        }
        for name, files in saved.items()
    }
    fingerprint = hash_of("run", config.model_dump_json(), weights, policy)
    return EvaluatedPlayer(
        "run", place.stem or str(place), fingerprint, config=config, saved=saved, policy=policy
    )


@asynccontextmanager
async def open_evaluated(
    evaluated: EvaluatedPlayer, notify: Callable[[str], None]
) -> AsyncIterator[PlayerFor]:
    """Start engines or connections, and yield the player for each role."""
    async with AsyncExitStack() as stack:
        if evaluated.config is not None:
            notify(f"starting the engines of {evaluated.name}")
            playing = inference_team(evaluated.config, evaluated.saved, notify)
            team = await stack.enter_async_context(playing)
            yield lambda env, role: team.player(env, evaluated.policy_for(role), None, frozenset())
        elif evaluated.spec is not None:
            player = server_player(stack, evaluated.spec, evaluated.options)
            yield lambda _env, _role: player
        else:
            yield lambda env, _role: scripted_player(env, evaluated.name)
