"""Parse the entries of a tournament from the command line, with their weights.

`minimax` or `minimax~0.3` is a scripted player, `http://HOST/v1#MODEL` a model on a server,
`FOLDER` the policy of a run, `FOLDER@20` a snapshot of its league, `FOLDER@all` all of them. A run
with several policies needs `FOLDER#POLICY`. A prefix `NAME=` sets the displayed name.
"""

import re
from collections.abc import Iterator, Sequence
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
from pettingllms.policies.files import Files
from pettingllms.runs.folder import CONFIG_FILE, RunFolder

LABEL = re.compile(r"([A-Za-z0-9_.~@ -]+)=(.+)")
SNAPSHOT = re.compile(r"(.+)@(\d+|all)")


@dataclass(frozen=True, slots=True)
class TournamentEntry:
    """One player of a tournament."""

    name: str
    """Displayed name."""
    spec: PlayerSpec
    """A scripted player, a server's model, or a run."""
    key: str = ""
    """Environment variable with the API key of its server."""
    policy: PolicyConfig | None = None
    """Policy config, if it comes from a run."""
    files: Files = field(default_factory=dict, repr=False)
    """Weights, if it comes from a run."""
    run: RunConfig | None = field(default=None, repr=False)
    """Config of that run."""


def parse_entries(
    env: Environment[Any, Any], words: Sequence[str], keys: Sequence[str] = ()
) -> list[TournamentEntry]:
    """Parse the entries. `keys` name variables with API keys: VARIABLE for a single server, else
    URL=VARIABLE. A server without `#MODEL` is queried for its model."""
    parsed = [entry for word in words for entry in _parse(env, word)]
    options = ServerOptions(parse_keys(keys, [entry.spec for entry in parsed]))
    found = [_resolved(entry, options) for entry in parsed]
    names = [entry.name for entry in found]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        listed = ", ".join(duplicates)
        raise ConfigError(
            "--player", [f"{listed}: duplicate name; set NAME=PLAYER for one of them"]
        )
    if len(names) < 2:
        raise ConfigError("--player", [f"got {len(names)}; a tournament needs at least two"])
    return found


def _resolved(entry: TournamentEntry, options: ServerOptions) -> TournamentEntry:
    """The entry with the model and key of its server, and a name."""
    spec = with_model(entry.spec, options)
    key = options.keys.get(spec.url, "")
    return replace(entry, name=entry.name or spec.name, spec=spec, key=key)


def _parse(env: Environment[Any, Any], word: str) -> Iterator[TournamentEntry]:
    labeled = LABEL.fullmatch(word)
    label, word = labeled.groups() if labeled else ("", word)
    external = parse_external_player(word, env)
    if external is not None:
        yield TournamentEntry(label, external)
    else:
        yield from _run_entries(env, word, label)


def _run_entries(env: Environment[Any, Any], word: str, label: str) -> Iterator[TournamentEntry]:
    found = SNAPSHOT.fullmatch(word)
    place, step = found.groups() if found and not Path(word).is_dir() else (word, "")
    place, _, policy = place.partition("#") if not Path(place).is_dir() else (place, "", "")
    if not (Path(place) / CONFIG_FILE).is_file():
        raise ConfigError(
            "--player",
            [f"{word}: not a run folder or a player; {nearest(word, env.players)}"],
        )
    folder = RunFolder(Path(place))
    config, (_, saved) = folder.config(), folder.newest(lambda _: None)
    trained = sorted(set(saved) & config.trained_policies())
    if not policy and len(trained) != 1:
        problem = f"{word}: the run has {', '.join(trained)}; set {place}#POLICY"
        raise ConfigError("--player", [problem])
    policy = policy or trained[0]
    whole = Path(place).resolve().name + (f"#{policy}" if len(trained) > 1 else "")
    snapshots = [name for name in saved if name.startswith(f"{policy}@")]
    wanted = {"": [policy], "all": snapshots}.get(step, [f"{policy}@{step}"])
    for name in wanted:
        if name not in saved:
            raise ConfigError(
                "--player", [f"{word}: the run has no '{name}'; {nearest(name, saved)}"]
            )
        at = name.removeprefix(policy)
        named = (label or whole) + (at if step in ("", "all") or not label else "")
        spec, section = PlayerSpec("run", place), config.policies[policy]
        yield TournamentEntry(named, spec, policy=section, files=saved[name], run=config)
