"""`check_start`: what a run relies on before its first step, looked at without a step."""

import pickle
from collections.abc import Sequence
from typing import Any

from pettingllms.envs.base import Split
from pettingllms.envs.contract_faults import Broken, Env, Fault, call, collect, in_time, refuse
from pettingllms.envs.workflow import Workflow
from pettingllms.types import Message, Task

SPLITS: tuple[Split, ...] = ("train", "test")
FIRST_SECONDS = 120.0
"""How long a play may take to begin, far more than `rollout.env_seconds`: the first one may load
what the others find."""


def check_start(
    env: Env, forks: bool, split: Split = "train", seconds: float = FIRST_SECONDS
) -> None:
    """Raise EnvContractError if plays of a split could not begin, or would be told apart from
    sound ones by nothing: tasks of which some are in both splits, states that siblings would change
    for each other (`forks`). Takes no step, so what a step does wrong is not found."""
    faults: dict[str, Fault] = {}
    collect(faults, check_roles, env)
    collect(faults, check_splits, env, split)
    if not faults and not isinstance(env, Workflow):
        collect(faults, in_time, seconds, _check_first, env, forks, split)
    refuse(env, faults.values())


def check_roles(env: Env) -> None:
    """At least one seat, each once."""
    roles: object = env.roles
    if isinstance(roles, str):
        raise Broken("bad-roles", f"roles are the text {roles!r}; write ({roles!r},)")
    if not env.roles or len(set(env.roles)) != len(env.roles):
        raise Broken("bad-roles", f"roles are {env.roles}; give at least one, each once")


def check_splits(env: Env, wanted: Split) -> None:
    """What runs rely on: tasks of the split, each once, and none of them in both."""
    ids: dict[str, set[str]] = {}
    for split in SPLITS:
        tasks = tasks_of(env, split)
        ids[split] = {task.id for task in tasks}
        if len(ids[split]) < len(tasks):
            raise Broken("bad-tasks", f"tasks('{split}') gives one id to several tasks")
    if not ids[wanted]:
        raise Broken("bad-tasks", f"tasks('{wanted}') is empty")
    if ids["train"] & ids["test"]:
        raise Broken("split-overlap", f"in both splits: {sorted(ids['train'] & ids['test'])[:3]}")


def tasks_of(env: Env, split: Split) -> Sequence[Task]:
    """The tasks of a split; of those that are made when they are asked for, the first."""
    given: object = call(lambda: env.tasks(split), f"tasks('{split}')")
    if not isinstance(given, Sequence):
        raise Broken("bad-tasks", f"tasks('{split}') gave {given!r:.60}; give a list of Task")
    tasks = given if isinstance(given, list | tuple) else given[:64]
    if wrong := [task for task in tasks if not isinstance(task, Task)]:
        raise Broken("bad-tasks", f"tasks('{split}') has {wrong[0]!r:.60}; give a list of Task")
    return tasks


def _check_first(env: Env, forks: bool, split: Split) -> None:
    """What the roles that speak first are shown; for forks, also that no step could change it."""
    state = call(lambda: env.reset(env.tasks(split)[0], 0), "reset")
    if forks:
        check_state(state)
    for role in check_acting(env, state):
        seen_by(env, state, role)


def check_state(state: object) -> None:
    """A state must be a value: equal to its copy, and nothing that a step could change."""
    try:
        copy = pickle.loads(pickle.dumps(state))  # noqa: S301 - bytes that we made just now
    except Exception as error:
        raise Broken("not-picklable", f"the state cannot be pickled: {error}") from error
    if copy != state:
        raise Broken("no-equality", "a pickled copy of a state is not equal to it")
    try:
        hash(state)
    except TypeError as error:
        raise Broken(
            "mutable-state",
            f"the state can be changed in place ({error}); make it a frozen dataclass of numbers, "
            "strings and tuples",
        ) from error


def check_acting(env: Env, state: object) -> tuple[str, ...]:
    """The roles that speak now, each once and each a role."""
    roles: Any = call(lambda: env.acting(state), "acting")
    if not isinstance(roles, tuple) or len(set(roles)) != len(roles):
        raise Broken("bad-acting", f"acting gave {roles!r}; give a tuple with each role once")
    unknown = [role for role in roles if role not in env.roles]
    if unknown:
        raise Broken("unknown-role", f"acting gave {unknown}, roles are {list(env.roles)}")
    return tuple(roles)


def seen_by(env: Env, state: object, role: str) -> tuple[object, ...]:
    """What a role is shown: at least one message, none of them empty."""
    seen: tuple[object, ...] = call(lambda: tuple(env.observe(state, role)), "observe")
    wrong = [m for m in seen if not isinstance(m, Message) or not (m.content.strip() or m.parts)]
    if wrong or not seen:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise Broken(
            "bad-observation",
            f"'{role}' is shown {shown:.60}; give a list of system(text) and user(text)",
        )
    return seen
