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
    Entrant,
    Env,
    ServerOptions,
    read_address,
    read_keys,
    server_seat,
    with_model,
)
from pettingllms.models import find_model
from pettingllms.policies.files import Saved
from pettingllms.rollout import Seat
from pettingllms.rollout.scripted import scripted_seat
from pettingllms.training.evaluate import start_weights

SeatOf = Callable[[Env, str], Seat]
"""Who plays a role of an environment."""
MODEL = "model"
"""What the policy of a bare model is called."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom the numbers are about."""

    kind: Literal["player", "server", "model", "run"]
    name: str
    """As the table has it."""
    mark: str
    """What it is made of, as a hash: results of another subject are not gone on with."""
    entrant: Entrant | None = None
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


def player_subject(name: str) -> Subject:
    """A scripted player, of whatever environment is played."""
    return Subject("player", name, _hash("player", name))


def server_subject(address: str, keys: Sequence[str], temperature: float) -> Subject:
    """A model behind an OpenAI-compatible server; it is asked for its name if that is not given."""
    entrant = read_address(address)
    options = ServerOptions(read_keys(keys, [entrant]), temperature)
    entrant = with_model(entrant, options)
    mark = _hash("server", entrant.url, entrant.name, temperature)
    return Subject("server", entrant.name, mark, entrant, options)


def model_subject(name: str, overrides: Sequence[str]) -> Subject:
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
    mark = _hash("model", str(folder), files, sorted(overrides))
    return Subject("model", name, mark, config=config)


def run_subject(place: Path, config: RunConfig, saved: Saved, policy: str) -> Subject:
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
    mark = _hash("run", config.model_dump_json(), weights, policy)
    return Subject("run", place.stem or str(place), mark, config=config, saved=saved, policy=policy)


@asynccontextmanager
async def opened(subject: Subject, say: Callable[[str], None]) -> AsyncIterator[SeatOf]:
    """Who plays which role, while engines run and connections are open."""
    async with AsyncExitStack() as stack:
        if subject.config is not None:
            say(f"starting the engines of {subject.name}")
            playing = playing_team(subject.config, subject.saved, say)
            team = await stack.enter_async_context(playing)
            yield lambda env, role: team.seat(env, subject.policy_of(role), None, frozenset())
        elif subject.entrant is not None:
            seat = server_seat(stack, subject.entrant, subject.options)
            yield lambda _env, _role: seat
        else:
            yield lambda env, _role: scripted_seat(env, subject.name)


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
