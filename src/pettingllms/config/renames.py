"""Names of version 0.1 and their successors.

A user's file with an old name is rejected with the new name in the message. Run folders and results
of version 0.1 stay readable: `migrate` renames their keys.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from pettingllms.config.co_players import SCRIPT
from pettingllms.config.section import Section
from pettingllms.config.training import GuardConfig
from pettingllms.config.verifier import VerifierConfig

KEYS = {
    "company": "co_players",
    "company.seats": "co_players.roles",
    "judge.max_gap": "judge.max_held_out_gap",
    "judge.seconds": "judge.timeout",
    "rollout.rotate": "rollout.rotate_roles",
    "rollout.env_seconds": "rollout.env_timeout",
    "rollout.sampler_seconds": "rollout.sampler_timeout",
    "loss.kl": "loss.kl_coef",
    "loss.entropy": "loss.entropy_coef",
    "loss.value": "loss.value_coef",
    "loss.max_weight": "loss.max_importance_weight",
    "loss.beta": "dpo.beta",
    "inference.max_gap": "inference.max_mismatch",
    "inference.start_seconds": "inference.start_timeout",
    "inference.max_model_tokens": "inference.max_model_len",
    "inference.gpu_memory": "inference.gpu_memory_utilization",
    "train.start": "train.init_from",
    "eval.distance": "eval.exploitability",
    "policies.*.sees": "policies.*.supports_images",
}
"""Configuration keys, dotted; `*` matches any name."""
VALUES = {
    ("guard.action", "say"): "warn",
    ("cluster.placement", "apart"): "separate",
}
"""Values of a key."""
SWITCHES = {
    "league": ("snapshot_every", "anchors", "exploiters"),
    "co_players": ("phases",),
    "judge": ("by",),
    "curriculum": ("key",),
    "sft": ("player", "episodes"),
    "dpo": ("episodes",),
}
"""Version 0.1 wrote every section. One was in use if any of these keys was set."""
DEFAULTS: dict[str, type[Section]] = {"guard": GuardConfig, "verifier": VerifierConfig}
"""Sections without such a key, which were in use either way."""
PLAYERS = {"careless": "noisy"}
"""Scripted players, wherever a configuration, a metric or a checkpoint names one."""
PLAYER_KEYS = {"player", "anchors"}
"""Last parts of keys whose values are scripted players; elsewhere, these need `script:`."""
PLAYER = re.compile(
    rf"((?:.*/)?(?:{SCRIPT}|anchor_|score_)?)({'|'.join(PLAYERS)})((?:~[^_]*)?(?:_reward)?)"
)
"""A scripted player in a configuration, in a checkpoint's state or in a metric."""
METRICS = {
    "gap": "mismatch",
    "max_gap": "max_mismatch",
    "canary_gap": "canary_difference",
    "doubt": "strength_deviation",
    "playing earlier company": "playing earlier co_players",
    "taking log-probs to hold on to": "computing reference log-probs",
}
"""Last parts of metrics."""
RATIO_KEYS = {"clip_low", "clip_high", "dual_clip", "max_importance_weight"}
UNUSED_LOSS_KEYS = {
    "clip": {"beta"},
    "gspo": {"beta"},
    "plain": {"beta", *RATIO_KEYS},
    "dpo": RATIO_KEYS,
}
"""Keys by `loss.type` that version 0.1 wrote and the loss does not have."""
SECTIONS = {"company": "co_players"}
"""First parts of metrics."""
EXPERIMENT_NAMES = {
    "AT-GRPO, played on": "AT-GRPO, full continuations",
    "three debate, before": "debate, untrained",
    "three debate, trained": "debate, trained",
    "one alone, before": "one role, untrained",
    "one alone, trained": "one role, trained",
    "right after round 1": "correct after round 1",
    "right after round 2": "correct after round 2",
    "right in the end": "correct at the end",
    "untrained, blank pictures": "untrained, blank images",
    "GRPO, blank pictures": "GRPO, blank images",
    "before self-play": "untrained",
    "waiting is free": "no discount",
    "waiting costs a fifth": "discount 0.8",
    "gain of the seller": "seller reward",
    "gain of the buyer": "buyer reward",
    "offers and answers": "number of turns",
    "two roles, AT-GRPO, a policy per role": "two roles, AT-GRPO, one policy per role",
    "solved test mazes, likeliest replies": "solved test mazes, greedy",
    "solved test puzzles, likeliest replies": "solved test puzzles, greedy",
    "in company": "with co-players",
    "company that switches": "with co-players that switch",
    "beside an author": "with an author",
    "beside a contrary writer": "with a contrary writer",
    "preferred to the start": "preferred to the warm start",
}
"""Arms and evaluations of shipped experiments, in a `results.json`."""


ENV_KEYS = {"sokoban-v1": {"levels": "data"}}
"""Options of environments, by id."""


def new_name(key: str) -> str | None:
    """The current name of a dotted key; None if it was not renamed."""
    for old, new in KEYS.items():
        if fnmatchcase(key, old):
            return key.rpartition(".")[0] + "." + new.rpartition(".")[2] if "*" in old else new
    return None


def migrate(data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain data of a run's configuration with the names of this version.

    Sections that the run did not use are left out.
    """
    renamed = {
        SECTIONS.get(name, name): _migrated(value, name) if isinstance(value, Mapping) else value
        for name, value in data.items()
    }
    if isinstance(loss := renamed.get("loss"), dict):
        if "beta" in loss and "dpo" in renamed:
            renamed["dpo"].setdefault("beta", loss["beta"])
        unused = UNUSED_LOSS_KEYS.get(loss.get("type", "clip"), set())
        renamed["loss"] = {key: value for key, value in loss.items() if key not in unused}
    if isinstance(env := renamed.get("env"), dict):
        names = ENV_KEYS.get(str(env.get("id")), {})
        renamed["env"] = {names.get(key, key): value for key, value in env.items()}
    return {name: value for name, value in renamed.items() if _is_used(name, value)}


def _is_used(name: str, section: Any) -> bool:
    if name in SWITCHES:
        return any(section.get(key) for key in SWITCHES[name])
    if name in DEFAULTS:
        defaults = DEFAULTS[name]().model_dump(mode="json", exclude_none=True)
        return bool({**defaults, **section} != defaults)
    return True


def player_name(name: str) -> str:
    """The current name of a scripted player, as in `careless~0.3`, `script:careless` or the metric
    `anchor_careless`; other names are returned unchanged."""
    found = PLAYER.fullmatch(name)
    return name if found is None else found[1] + PLAYERS[found[2]] + found[3]


def migrate_metrics(row: Mapping[str, Any]) -> dict[str, Any]:
    """One step's metrics with the names of this version."""
    return {_metric(name): value for name, value in row.items()}


def _migrated(section: Mapping[str, Any], path: str) -> dict[str, Any]:
    found = {}
    for key, value in section.items():
        where = f"{path}.{key}"
        new = new_name(where)
        name = new.rpartition(".")[2] if new else _member(key)
        found[name] = (
            _migrated(value, where) if isinstance(value, Mapping) else _value(where, value)
        )
    return found


def _value(where: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_migrated(v, where) if isinstance(v, Mapping) else _value(where, v) for v in value]
    if not isinstance(value, str):
        return value
    names_player = where.rpartition(".")[2] in PLAYER_KEYS
    return VALUES.get((where, value)) or (player_name(value) if names_player else _member(value))


def _member(name: str) -> str:
    """The current name of a member; without `script:`, it is a policy and keeps its name."""
    return player_name(name) if name.startswith(SCRIPT) else name


def _metric(name: str) -> str:
    *parts, last = name.split("/")
    if parts:
        parts[0] = SECTIONS.get(parts[0], parts[0])
    return "/".join([*parts, METRICS.get(last) or player_name(last)])
