"""Names for classes and objects that a user passes from Python.

A configuration is plain data, so it names every environment, algorithm and judge. A class in a
module or a file gets a name that other processes can load, and `resume` finds it again. A class of
a notebook cell or a function, or an environment object with state besides its options, gets the
name `session:NAME`, which only this process knows.
"""

import copy
import inspect
import sys
from pathlib import Path
from typing import Any

from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, UnknownNameError
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS, JUDGES, SESSION, Registry

REGISTRIES = (ENVIRONMENTS, ALGORITHMS, JUDGES)
_objects: dict[str, Environment[Any, Any]] = {}


def name_class(cls: type) -> str:
    """Register an environment, an algorithm or a judge, and return the name to configure."""
    registry = next((one for one in REGISTRIES if one.is_base_of(cls)), None)
    if registry is None:
        raise ConfigError(
            cls.__qualname__,
            [f"{cls!r} is no subclass of pettingllms.Environment, Algorithm or Judge"],
        )
    shipped = getattr(cls, "id", "")
    if isinstance(shipped, str) and _loads(registry, shipped, cls):
        return shipped
    name = _importable_name(cls) or f"{SESSION}:{cls.__qualname__}"
    registry.register(name, cls)
    return name


def env_section(env: Any) -> dict[str, Any]:
    """The [env] section for an environment that is given as a name, a class or an object."""
    if isinstance(env, str):
        return {"id": env}
    if isinstance(env, dict):
        given = env.get("id")
        return {**env, "id": name_class(given)} if isinstance(given, type) else env
    if isinstance(env, type):
        return {"id": name_class(env)}
    if not isinstance(env, Environment):
        raise ConfigError(
            "env", [f"got {env!r:.80}; give a name, a table, an Environment class or object"]
        )
    options = env.config.model_dump(mode="json", exclude_none=True)
    return {**options, "id": _name_object(env)}


def register_env(name: str, env: Any) -> None:
    """Let the name that a run's configuration has stand for an environment of this process."""
    if isinstance(env, type):
        name_class(env)
        ENVIRONMENTS.register(name, env)
    else:
        ENVIRONMENTS.register(name, _class_of(env))


def _name_object(env: Environment[Any, Any]) -> str:
    if _is_made_by_options(env):
        return str(env.config.id)
    if list(inspect.signature(type(env)).parameters) == ["config"]:
        return name_class(type(env))
    name, number = f"{SESSION}:{env.id}", 1
    while (taken := _objects.get(name)) is not None and taken is not env:
        number += 1
        name = f"{SESSION}:{env.id}#{number}"
    _objects[name] = env
    ENVIRONMENTS.register(name, _class_of(env))
    return name


def _is_made_by_options(env: Environment[Any, Any]) -> bool:
    """Whether the environment's options, with the id among them, make it again."""
    try:
        cls = ENVIRONMENTS.load(env.config.id)
    except UnknownNameError:
        return False
    return cls is type(env) or (env.config.solo and cls.Config is type(env.config))


def _class_of(env: Environment[Any, Any]) -> type:
    """A class whose `create` returns the object again, with the options that a run configures."""
    cls: Any = type(env)

    def create(config: Any) -> Environment[Any, Any]:
        made: Environment[Any, Any] = copy.copy(env)
        made.config = config
        return made.solo() if config.solo and not env.config.solo else made

    return type(cls.__name__, (cls,), {"create": staticmethod(create)})


def _loads(registry: Registry, name: str, cls: type) -> bool:
    try:
        return bool(name) and registry.ships(name) and registry.load(name) is cls
    except UnknownNameError:
        return False


def _importable_name(cls: type) -> str:
    """`package.module:Class` or `file.py:Class`; empty if no other process could load it."""
    module = sys.modules.get(cls.__module__)
    if module is None or getattr(module, cls.__name__, cls) is not cls or "." in cls.__qualname__:
        return ""
    if module.__spec__ is not None and module.__spec__.parent:
        return f"{module.__spec__.name}:{cls.__name__}"
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py") or not Path(file).is_file():
        return ""
    return f"{Path(file).resolve()}:{cls.__name__}"
