"""A call's role follows from its key, path, model, header or rules, and is never guessed."""

from typing import Any

import pytest

from pettingllms.envs import RoleRule
from pettingllms.gateway.calls import Call, CallError, ChatMessage
from pettingllms.gateway.roles import RoleMap, without_keys

RULES = (
    RoleRule("planner", "system", "You plan"),
    RoleRule("worker", "header", "w", name="X-Agent"),
    RoleRule("critic", "model", "gpt-critic"),
)
ROLES = RoleMap(("planner", "worker", "critic"), RULES)


def call(system: str = "", model: str = "any", **headers: str) -> Call:
    scene = (ChatMessage("system", system),) if system else ()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(model=model, messages=(*scene, ChatMessage("user", "hi")), headers=named)


@pytest.mark.parametrize(
    ("asked", "bound", "role"),
    [
        (call("Hello. You plan things."), None, "planner"),
        (call(x_agent="w"), None, "worker"),
        (call(model="gpt-critic"), None, "critic"),
        (call(model="worker"), None, "worker"),
        (call(x_pettingllms_role="critic"), None, "critic"),
        (call("You plan"), "worker", "worker"),
    ],
)
def test_a_role_is_determined(asked: Call, bound: str | None, role: str) -> None:
    assert ROLES.of(asked, bound) == role


@pytest.mark.parametrize(
    ("asked", "bound", "status", "words"),
    [
        (call(), None, 400, "planner, worker, critic"),
        (call("You plan", x_agent="w"), None, 400, "several roles (planner, worker)"),
        (call(x_pettingllms_role="workers"), None, 400, "did you mean 'worker'?"),
        (call(), "stranger", 404, "no role 'stranger'"),
    ],
)
def test_ambiguous_calls_are_rejected(
    asked: Call, bound: str | None, status: int, words: str
) -> None:
    with pytest.raises(CallError) as caught:
        ROLES.of(asked, bound)
    assert caught.value.status == status
    assert words in caught.value.message


def test_user_messages_do_not_determine_the_role() -> None:
    asked = Call(model="m", messages=(ChatMessage("user", "You plan"),), headers={})
    with pytest.raises(CallError):
        ROLES.of(asked, None)


def test_a_program_with_one_role_needs_no_rule() -> None:
    assert RoleMap(("agent",)).of(call(), None) == "agent"


def test_invalid_rules_are_rejected() -> None:
    with pytest.raises(ValueError, match="did you mean 'planner'"):
        RoleMap(("planner",), (RoleRule("planer", "model", "m"),))
    with pytest.raises(ValueError, match="matches every call"):
        RoleMap(("planner",), (RoleRule("planner", "system", ""),))


def test_rules_cannot_read_keys() -> None:
    given: dict[str, Any] = {"Authorization": "Bearer x", "X-API-Key": "y", "X-Agent": "w"}
    assert without_keys(given) == {"x-agent": "w"}
