from collections.abc import Sequence

import pytest

import pettingllms.config.checks
from pettingllms.config.checks import cross_check
from pettingllms.config.policies import ApiPolicy, FrozenPolicy, FullPolicy, ScriptedPolicy
from toys import Relay

SCRIPT = ScriptedPolicy()


class Seen(Relay):
    """Shows images to b alone."""

    @property
    def seeing(self) -> tuple[str, ...]:
        return ("b",)


def problems(env: Relay, roles: dict[str, str], **policies: object) -> Sequence[str]:
    return cross_check({"roles": roles, "policies": policies}, env)


@pytest.mark.parametrize(
    "policy", [FullPolicy(model="m"), FrozenPolicy(model="m"), ApiPolicy(url="http://h", model="m")]
)
def test_a_policy_that_cannot_see_is_refused_at_start_up(policy: object) -> None:
    (problem,) = problems(Seen(), {"a": "script", "b": "p"}, p=policy, script=SCRIPT)
    assert "policies.p: 'relay-v1' shows images to 'b', and" in problem
    assert "'m'" in problem
    assert "scripted player" in problem
    (problem,) = problems(Seen(), {}, p=policy)
    assert problem.startswith("policies.p: ")


def test_a_policy_that_is_shown_no_image_need_not_see() -> None:
    model = FullPolicy(model="m")
    assert problems(Seen(), {"a": "p", "b": "script"}, p=model, script=SCRIPT) == []
    assert problems(Relay(), {"a": "p", "b": "p"}, p=model) == []
    assert problems(Seen(), {}, p=SCRIPT) == []


def test_images_without_pillow_are_refused_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pettingllms.config.checks, "can_decode", lambda: False)
    (problem,) = problems(Seen(), {}, p=SCRIPT)
    assert "pip install 'pettingllms[vision]'" in problem
