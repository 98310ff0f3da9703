"""Configurations from Python: a TOML file, a table, a RunConfig, or the sections as keywords."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.api.user_classes import env_section, name_class
from pettingllms.config import RunConfig, apply_overrides, parse_config, read_config, read_toml
from pettingllms.config.renames import migrate
from pettingllms.config.user_code import named_places
from pettingllms.errors import ConfigError
from pettingllms.registry import absolute
from pettingllms.runs.trust import is_of_run, require_trusted

ConfigLike = str | Path | Mapping[str, Any] | RunConfig | None
"""What every call takes as its configuration."""
POLICY = "policy"
"""Name of the policy that the keyword `model` makes."""
DEFAULT_ALGO = "grpo"


def make_config(
    config: ConfigLike = None,
    *,
    env: Any = None,
    model: str | Path | None = None,
    lr: float | None = None,
    num_steps: int | None = None,
    overrides: Sequence[str] = (),
    **sections: Any,
) -> RunConfig:
    """The checked configuration of a run.

    `config` is the path of a TOML file, a table of sections, or a RunConfig. Keywords replace or
    extend its sections: `rollout={"num_samples": 8}` changes one key and keeps the others.
    `env` is a name, a table, an `Environment` class or object. `model` makes one trainable policy
    for all roles, with the learning rate `lr`, and `num_steps` sets `train.num_steps`. `algo` is a
    name, a table or an `Algorithm` class; with `model` it is GRPO by default.
    `overrides` are texts such as `"rollout.num_samples=8"`, as on the command line.
    """
    changes = (env, model, lr, num_steps, overrides or None, sections or None)
    if isinstance(config, RunConfig) and all(change is None for change in changes):
        return config
    data = _data(config, overrides)
    problems = apply_overrides(data, overrides)
    for name, section in sections.items():
        data[name] = _merge(data.get(name), _section(name, section))
    if env is not None:
        data["env"] = _env(data.get("env"), env)
    if model is not None:
        _add_model(data, model, lr)
    elif lr is not None:
        raise ConfigError("lr", ["goes with model; set policies.NAME.lr for each policy instead"])
    if num_steps is not None:
        data["train"] = _merge(data.get("train"), {"num_steps": num_steps})
    if config is None or model is not None:
        data.setdefault("algo", {"type": DEFAULT_ALGO})
    data = _name_classes(data)
    for section, key, _ in named_places(data):
        section[key] = absolute(section[key])
    source = str(config) if isinstance(config, str | Path) else "configuration"
    return parse_config(data, source, problems)


def _data(config: ConfigLike, overrides: Sequence[str]) -> dict[str, Any]:
    """The sections as plain data that may be changed."""
    if isinstance(config, str | Path):
        path = Path(config)
        if not is_of_run(path):
            return read_config(path)
        require_trusted(path, overrides)
        return migrate(read_toml(path))
    if isinstance(config, RunConfig):
        return config.model_dump(mode="json", exclude_none=True)
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise ConfigError(
            "configuration", [f"got {config!r:.80}; give a TOML file, a dict or a RunConfig"]
        )
    copied: dict[str, Any] = _name_classes(
        {name: _section(name, section) for name, section in config.items()}
    )
    return copied


def _section(name: str, section: Any) -> Any:
    """A section as plain data; `algo="grpo"` and `env=MyEnv` name their class alone."""
    if name == "env":
        return env_section(section)
    if name == "algo" and isinstance(section, str | type):
        return {"type": section}
    if hasattr(section, "model_dump"):
        return section.model_dump(mode="json", exclude_none=True)
    return section


def _merge(old: Any, new: Any) -> Any:
    """Tables are merged key by key, however deep; anything else is replaced."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}


def _env(old: Any, env: Any) -> Any:
    """A class or a name keeps the options of the configuration; an object brings its options."""
    new = env_section(env)
    if isinstance(env, str | type | Mapping):
        return _merge(old, new)
    if isinstance(old, Mapping) and set(old) - {"id"}:
        options = ", ".join(sorted(set(old) - {"id"}))
        advice = "the environment is given as an object; set its options where the object is made"
        raise ConfigError("env", [f"{options}: {advice}"])
    return new


def _add_model(data: dict[str, Any], model: str | Path, lr: float | None) -> None:
    if data.get("policies"):
        advice = "set policies.NAME.model there, or leave one of the two out"
        raise ConfigError("model", [f"the configuration has policies already; {advice}"])
    policy = {"kind": "full", "model": str(model), **({} if lr is None else {"lr": lr})}
    data["policies"] = {POLICY: policy}


def _name_classes(data: Any) -> Any:
    """The same data with every class replaced by the name that loads it."""
    if isinstance(data, type):
        return name_class(data)
    if isinstance(data, Path):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _name_classes(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_name_classes(value) for value in data]
    return data
