"""`except Exception` stands only where somebody else's failure becomes a record or a message."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "pettingllms"
BOUNDARIES = {
    "api/blocking.py",  # raised again on the caller's thread
    "cluster/start.py",  # Ray raises a bare Exception where it does not come up
    "config/checks.py",  # an author's constructor
    "envs/contract.py",  # an author's environment, whose faults are to be named
    "envs/contract_faults.py",  # the same
    "envs/check_start.py",  # the same
    "envs/adapters/library.py",  # somebody else's library, whose modules may not even parse
    "envs/tasks/code/grade.py",  # the result of a program that cannot be compared is a wrong answer
    "envs/tasks/code/inside/checker.py",  # a data set's check says no by raising
    "envs/tasks/code/inside/driver.py",  # a model's program, in its sandbox
    "envs/single_turn.py",  # a user's reward function
    "errors.py",  # the words of an author's exception
    "gateway/programs.py",  # somebody else's program
    "grading/worker.py",  # whatever an answer makes the algebra raise
    "judges/requests.py",  # calls into a judge's voice
    "registry.py",  # an author's module
    "rollouts/env_calls.py",  # calls into an environment
    "rollouts/player.py",  # calls into a sampler
    "runs/trackers.py",  # calls into somebody else's service
    "sandbox/inside.py",  # whatever the program in the sandbox raises
}


def test_broad_excepts_stand_at_the_boundaries_alone() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                caught = "BaseException" if node.type is None else ast.unparse(node.type)
                if {"Exception", "BaseException"} & set(re.findall(r"\w+", caught)):
                    found.add(str(path.relative_to(SOURCE)))
    assert found == BOUNDARIES
