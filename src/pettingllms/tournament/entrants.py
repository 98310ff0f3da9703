"""Who takes part: a word on the command line becomes a policy, with weights if it has any.

`minimax` or `minimax~0.3` is a scripted player, `http://HOST/v1#MODEL` a model behind a server,
`FOLDER` the policy of a run, `FOLDER@20` a snapshot of its league, `FOLDER@all` all of them. A run
with several policies needs `FOLDER#POLICY`. `NAME=` before any of them is how it is listed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.config.policies import ApiPolicy, ScriptedPolicy
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, nearest
from pettingllms.runs.folder import CONFIG_FILE, RunFolder

LABEL = re.compile(r"([A-Za-z0-9_.~@ -]+)=(.+)")
SNAPSHOT = re.compile(r"(.+)@(\d+|all)")


@dataclass(frozen=True, slots=True)
class Entrant:
    """One player of a tournament."""

    name: str
    policy: PolicyConfig
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Its weights, if a run gave it."""
    run: RunConfig | None = field(default=None, repr=False)
    """The configuration of that run."""


def read_entrants(env: Environment[Any, Any], words: Sequence[str], key: str = "") -> list[Entrant]:
    """The players that words name; `key` is the variable with the key of servers."""
    entrants = [entrant for word in words for entrant in _read(env, word, key)]
    names = [entrant.name for entrant in entrants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        listed = ", ".join(twice)
        raise ConfigError("--player", [f"{listed}: comes twice; write NAME=PLAYER for one of them"])
    if len(names) < 2:
        raise ConfigError("--player", [f"{len(names)} given; a tournament needs two at least"])
    return entrants


def _read(env: Environment[Any, Any], word: str, key: str) -> Iterator[Entrant]:
    labelled = LABEL.fullmatch(word)
    label, word = labelled.groups() if labelled else ("", word)
    if word.startswith(("http://", "https://")):
        url, sharp, model = word.rpartition("#")
        if not sharp:
            raise ConfigError("--player", [f"{word}: write URL#MODEL"])
        yield Entrant(label or model, ApiPolicy(url=url, model=model, key=key, sees=True))
    elif word.partition("~")[0] in env.players:
        env.player(word)
        yield Entrant(label or word, ScriptedPolicy(player=word))
    else:
        yield from _of_run(env, word, label)


def _of_run(env: Environment[Any, Any], word: str, label: str) -> Iterator[Entrant]:
    found = SNAPSHOT.fullmatch(word)
    place, step = found.groups() if found and not Path(word).is_dir() else (word, "")
    place, _, policy = place.partition("#") if not Path(place).is_dir() else (place, "", "")
    if not (Path(place) / CONFIG_FILE).is_file():
        raise ConfigError(
            "--player",
            [f"{word}: neither a run's folder nor a player; {nearest(word, env.players)}"],
        )
    folder = RunFolder(Path(place))
    config, (_, saved) = folder.config(), folder.newest(lambda _: None)
    trained = sorted(set(saved) & config.trained_policies())
    if not policy and len(trained) != 1:
        problem = f"{word}: the run has {', '.join(trained)}; write {place}#POLICY"
        raise ConfigError("--player", [problem])
    policy = policy or trained[0]
    whole = Path(place).resolve().name + (f"#{policy}" if len(trained) > 1 else "")
    snapshots = [name for name in saved if name.startswith(f"{policy}@")]
    wanted = {"": [policy], "all": snapshots}.get(step, [f"{policy}@{step}"])
    for name in wanted:
        if name not in saved:
            raise ConfigError("--player", [f"{word}: no '{name}' there; {nearest(name, saved)}"])
        at = name.removeprefix(policy)
        named = (label or whole) + (at if step in ("", "all") or not label else "")
        yield Entrant(named, config.policies[policy], saved[name], config)
