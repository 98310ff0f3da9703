"""Alternating updates and late joining on real engines: who rests keeps its weights, bit by bit."""

from itertools import pairwise
from pathlib import Path

import pytest
from running import config_of, drive, metrics_of

pytestmark = pytest.mark.engine
ROLES = {"role0": "a", "role1": "b"}
SMALL = {"engine": "torch"}
KINDS = {
    "lora": {"kind": "lora", "rank": 8, "lr": 1e-3},
    "full": {"kind": "full", "lr": 1e-3},
}


def moved(history: list) -> list[dict[str, set[str]]]:
    """For each step, the policies that changed in the learner and in the sampler."""
    return [
        {
            side: {policy for policy in after if after[policy][side] != before[policy][side]}
            for side in ("learner", "sampler")
        }
        for before, after in pairwise(history)
    ]


def both(*policies: str) -> dict[str, set[str]]:
    return {"learner": set(policies), "sampler": set(policies)}


@pytest.mark.parametrize("kind", KINDS)
def test_policies_that_alternate_move_by_turns(kind: str, tiny: Path, tmp_path: Path) -> None:
    policies = {name: {**KINDS[kind], "model": str(tiny)} for name in ("a", "b")}
    turns = {"num_steps": 4, "alternate": ["a", "b"], "alternate_every": 1}
    config = config_of(policies, ROLES, train=turns, inference=SMALL)
    found = drive(tmp_path, "levels", config)
    assert moved(found["history"]) == [both("a"), both("b"), both("a"), both("b")]
    lines = metrics_of(tmp_path / "run")
    assert [line["policies/a/version"] for line in lines] == [1, 1, 2, 2]
    assert [line["policies/b/version"] for line in lines] == [0, 1, 1, 2]
    assert [line["policies/b/trained_turns"] > 0 for line in lines] == [False, True, False, True]


def test_a_policy_that_joins_late_rests_until_then(tiny: Path, tmp_path: Path) -> None:
    policies = {
        "a": {**KINDS["lora"], "model": str(tiny)},
        "b": {**KINDS["lora"], "model": str(tiny), "join_step": 3},
    }
    config = config_of(policies, ROLES, train={"num_steps": 4}, inference=SMALL)
    found = drive(tmp_path, "levels", config)
    assert moved(found["history"]) == [both("a"), both("a"), both("a", "b"), both("a", "b")]
