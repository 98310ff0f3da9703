"""`check_start`: the parts of the contract that a run checks before its first step."""

import pickle
from collections.abc import Sequence
from typing import Any

from pettingllms.envs.base import Split
from pettingllms.envs.contract_faults import (
    ContractViolation,
    Env,
    Fault,
    call,
    collect_fault,
    require_no_faults,
    run_with_timeout,
)
from pettingllms.envs.workflow import Workflow
from pettingllms.types import Message, Task

SPLITS: tuple[Split, ...] = ("train", "test")
FIRST_SECONDS = 120.0
"""Timeout for the first reset and observation. Far above `rollout.env_timeout`, because the first
call may load data that later calls find in memory."""


def check_start(
    env: Env, forks: bool, split: Split = "train", seconds: float = FIRST_SECONDS
) -> None:
    """Raise EnvContractError if episodes of a split could not start or would be unsound.

    Checks roles, tasks, splits and first observations. With `forks` it also requires states that
    siblings cannot change for each other. It takes no step, so it finds no faults in `step`.
    """
    faults: dict[str, Fault] = {}
    collect_fault(faults, check_roles, env)
    collect_fault(faults, check_splits, env, split)
    if not faults and not isinstance(env, Workflow):
        collect_fault(faults, run_with_timeout, seconds, _check_first_state, env, forks, split)
    require_no_faults(env, faults.values())


def check_roles(env: Env) -> None:
    """Require at least one role and no duplicates."""
    roles: object = env.roles
    if isinstance(roles, str):
        raise ContractViolation("bad-roles", f"roles are the text {roles!r}; write ({roles!r},)")
    if not env.roles or len(set(env.roles)) != len(env.roles):
        raise ContractViolation("bad-roles", f"roles are {env.roles}; give at least one, each once")


def check_splits(env: Env, wanted: Split) -> None:
    """Require tasks in the split, unique ids, and no overlap of the splits."""
    ids: dict[str, set[str]] = {}
    for split in SPLITS:
        tasks = load_tasks(env, split)
        ids[split] = {task.id for task in tasks}
        if len(ids[split]) < len(tasks):
            raise ContractViolation("bad-tasks", f"tasks('{split}') gives one id to several tasks")
    if not ids[wanted]:
        raise ContractViolation(
            "bad-tasks",
            f"tasks('{wanted}') is empty; if env.data names a test set, set env.data to a training "
            "set and env.test_data to the test set",
        )
    if both := sorted(ids["train"] & ids["test"]):
        raise ContractViolation("split-overlap", f"in both splits: {both[:3]}")


def load_tasks(env: Env, split: Split) -> Sequence[Task]:
    """The tasks of a split; only the first 64 of a lazy sequence."""
    given: object = call(lambda: env.tasks(split), f"tasks('{split}')")
    if not isinstance(given, Sequence):
        raise ContractViolation(
            "bad-tasks", f"tasks('{split}') gave {given!r:.60}; give a list of Task"
        )
    tasks = given if isinstance(given, list | tuple) else given[:64]
    if wrong := [task for task in tasks if not isinstance(task, Task)]:
        raise ContractViolation(
            "bad-tasks", f"tasks('{split}') has {wrong[0]!r:.60}; give a list of Task"
        )
    return tasks


def _check_first_state(env: Env, forks: bool, split: Split) -> None:
    state = call(lambda: env.reset(env.tasks(split)[0], 0), "reset")
    if forks:
        check_state(state)
    for role in check_acting(env, state):
        check_observation(env, state, role)


def check_state(state: object) -> None:
    """Require a state that is picklable, equal to its copy, and hashable."""
    try:
        copy = pickle.loads(pickle.dumps(state))  # noqa: S301 - our own bytes
    except Exception as error:
        raise ContractViolation("not-picklable", f"the state cannot be pickled: {error}") from error
    if copy != state:
        raise ContractViolation("no-equality", "a pickled copy of a state is not equal to it")
    try:
        hash(state)
    except TypeError as error:
        raise ContractViolation(
            "mutable-state",
            f"the state can be changed in place ({error}); make it a frozen dataclass of numbers, "
            "strings and tuples",
        ) from error


def check_acting(env: Env, state: object) -> tuple[str, ...]:
    """The roles to act; require a tuple of known roles without duplicates."""
    roles: Any = call(lambda: env.acting(state), "acting")
    if not isinstance(roles, tuple) or len(set(roles)) != len(roles):
        raise ContractViolation(
            "bad-acting", f"acting gave {roles!r}; give a tuple with each role once"
        )
    unknown = [role for role in roles if role not in env.roles]
    if unknown:
        raise ContractViolation(
            "unknown-role", f"acting gave {unknown}, roles are {list(env.roles)}"
        )
    return tuple(roles)


def check_observation(env: Env, state: object, role: str) -> tuple[object, ...]:
    """A role's observation; require at least one message and no empty ones."""
    seen: tuple[object, ...] = call(lambda: tuple(env.observe(state, role)), "observe")
    wrong = [m for m in seen if not isinstance(m, Message) or not (m.content.strip() or m.parts)]
    if wrong or not seen:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise ContractViolation(
            "bad-observation",
            f"'{role}' is shown {shown:.60}; give a list of system(text) and user(text)",
        )
    return seen
