"""A policy whose programs probe their sandbox is seen: in its steps, its metrics and an alarm."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from plays import linear, rewards
from toys import Relay, roll

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import StepResult
from pettingllms.errors import SandboxError
from pettingllms.runs.metrics import episode_metrics
from pettingllms.runs.summary import sandbox_alarm, summarize
from pettingllms.sandbox import open_sandbox, python
from pettingllms.types import Episode, episode_from_json, episode_to_json

PROBE = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"
CURIOUS = "import socket\ntry: socket.socket()\nexcept OSError: pass"


class Programs(Relay):
    """A relay in which `b` has its programs run: replies name what they do."""

    def step(self, state: Any, replies: Mapping[str, str]) -> StepResult[Any]:
        if "b" in replies:
            open_sandbox().run(python({"1": PROBE, "2": CURIOUS}.get(replies["b"], "")))
        return super().step(state, replies)


def team() -> RunConfig:
    return parse_config(
        {
            "env": {"id": "toys:Relay"},
            "algo": {"type": "grpo"},
            "policies": {
                "policy_a": {"kind": "full", "model": "m"},
                "policy_b": {"kind": "scripted"},
            },
            "roles": {"a": "policy_a", "b": "policy_b"},
        }
    )


def played(reply: str) -> Episode:
    try:
        if not open_sandbox().is_logged:
            pytest.skip("another seccomp listener is active around us")
    except SandboxError as error:
        pytest.skip(str(error))
    episode = roll(Programs(), lambda request, number: reply, num_tasks=1, num_samples=1)[0]
    assert episode.failure is None
    return episode_from_json(episode_to_json(episode))


@pytest.mark.parametrize(
    ("reply", "refused", "probing"), [("1", 2.0, 2.0), ("2", 2.0, 0.0), ("4", 0.0, 0.0)]
)
def test_refused_calls_are_metrics_of_the_role_that_wrote_the_program(
    reply: str, refused: float, probing: float
) -> None:
    episode = played(reply)
    config = team()
    summary = summarize([episode], config)
    roles = episode_metrics([episode], config, summary)["roles"]
    assert (roles["b"]["refused_calls"], roles["b"]["probing_calls"]) == (refused, probing)
    assert "refused_calls" not in roles["a"], "none of its programs ran"
    wrong = sandbox_alarm(summary)
    assert (wrong is not None) == bool(probing)
    if wrong is not None:
        assert "'b' (ptrace 2)" in wrong


def test_runs_without_programs_have_no_such_metric() -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    summary = summarize([episode], team())
    assert "refused_calls" not in episode_metrics([episode], team(), summary)["roles"]["a"]
    assert sandbox_alarm(summary) is None


def test_steps_name_the_calls() -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    numbers = {"refused_calls": 3.0, "refused_calls/bpf": 2.0, "refused_calls/socket": 1.0}
    episode.steps[0] = replace(episode.steps[0], metrics=numbers)
    assert "'a' (bpf 2)" in str(sandbox_alarm(summarize([episode], team())))
