"""Who takes part: a word on the command line becomes a entry, with weights if it has any.

`minimax` or `minimax~0.3` is a scripted player, `http://HOST/v1#MODEL` a model behind a server,
`FOLDER` the policy of a run, `FOLDER@20` a snapshot of its league, `FOLDER@all` all of them. A run
with several policies needs `FOLDER#POLICY`. `NAME=` before any of them is how it is listed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, nearest
from pettingllms.evaluation.players import (
    PlayerSpec,
    ServerOptions,
    parse_external_player,
    parse_keys,
    with_model,
)
from pettingllms.runs.folder import CONFIG_FILE, RunFolder

LABEL = re.compile(r"([A-Za-z0-9_.~@ -]+)=(.+)")
SNAPSHOT = re.compile(r"(.+)@(\d+|all)")


@dataclass(frozen=True, slots=True)
class TournamentEntry:
    """One player of a tournament."""

    name: str
    """As it is listed."""
    player_spec: PlayerSpec
    """A scripted player, a server's model, or a run."""
    key: str = ""
    """Environment variable that holds the key of its server."""
    policy: PolicyConfig | None = None
    """Of the run, if it is one's."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Its weights, if a run gave it."""
    run: RunConfig | None = field(default=None, repr=False)
    """The configuration of that run."""


def parse_entries(
    env: Environment[Any, Any], words: Sequence[str], keys: Sequence[str] = ()
) -> list[TournamentEntry]:
    """The players that words name. `keys` are variables with the keys of servers, VARIABLE if there
    is one server, else ADDRESS=VARIABLE; a server whose model is not named is asked for it."""
    read = [entry for word in words for entry in _read(env, word)]
    options = ServerOptions(parse_keys(keys, [entry.player_spec for entry in read]))
    found = [_known(entry, options) for entry in read]
    names = [entry.name for entry in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        listed = ", ".join(twice)
        raise ConfigError("--player", [f"{listed}: comes twice; write NAME=PLAYER for one of them"])
    if len(names) < 2:
        raise ConfigError("--player", [f"{len(names)} given; a tournament needs two at least"])
    return found


def _known(entry: TournamentEntry, options: ServerOptions) -> TournamentEntry:
    """The same with its server's model and key, under a name."""
    player_spec = with_model(entry.player_spec, options)
    key = options.keys.get(player_spec.url, "")
    return replace(entry, name=entry.name or player_spec.name, player_spec=player_spec, key=key)


def _read(env: Environment[Any, Any], word: str) -> Iterator[TournamentEntry]:
    labelled = LABEL.fullmatch(word)
    label, word = labelled.groups() if labelled else ("", word)
    outsider = parse_external_player(word, env)
    if outsider is not None:
        yield TournamentEntry(label, outsider)
    else:
        yield from _of_run(env, word, label)


def _of_run(env: Environment[Any, Any], word: str, label: str) -> Iterator[TournamentEntry]:
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
        player_spec, section = PlayerSpec("run", place), config.policies[policy]
        yield TournamentEntry(named, player_spec, policy=section, files=saved[name], run=config)
