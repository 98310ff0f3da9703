"""`except Exception` is allowed only where a foreign failure becomes a record or a message."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "pettingllms"
BOUNDARIES = {
    "api/blocking.py",  # raised again on the caller's thread
    "cluster/start.py",  # Ray raises a bare Exception if it does not start
    "config/checks.py",  # an author's constructor
    "envs/contract.py",  # an author's environment, whose faults are reported
    "envs/contract_faults.py",  # the same
    "envs/check_start.py",  # the same
    "envs/adapters/library.py",  # modules of another library, which may not even parse
    "envs/adapters/verifiers_child.py",  # an author's taskset, in the process of verifiers
    "envs/drafts/child.py",  # any exception of a draft, in its sandboxed process
    "envs/openenv/connection.py",  # raised again, after the connection is closed
    "envs/openenv/served.py",  # calls into an environment
    "envs/tasks/code/grade.py",  # the result of a program that cannot be compared is a wrong answer
    "envs/tasks/code/inside/checker.py",  # checks of data sets reject by raising
    "envs/tasks/code/inside/driver.py",  # a model's program, in its sandbox
    "envs/single_turn.py",  # a user's reward function
    "errors.py",  # the text of an author's exception
    "gateway/programs.py",  # a user's program
    "grading/worker.py",  # any exception of the algebra library
    "judges/requests.py",  # calls into a judge model
    "registry.py",  # an author's module
    "rollouts/env_calls.py",  # calls into an environment
    "rollouts/player.py",  # calls into a sampler
    "runs/remote_folder.py",  # a file system of fsspec
    "runs/trackers.py",  # calls into a tracker's service
    "sandbox/inside.py",  # any exception of the program in the sandbox
}


def test_broad_excepts_are_only_at_boundaries() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                caught = "BaseException" if node.type is None else ast.unparse(node.type)
                if {"Exception", "BaseException"} & set(re.findall(r"\w+", caught)):
                    found.add(str(path.relative_to(SOURCE)))
    assert found == BOUNDARIES
