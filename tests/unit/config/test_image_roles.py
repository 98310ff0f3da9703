import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toys import Relay

import pettingllms.config.checks
from pettingllms.config.checks import cross_check
from pettingllms.config.policies import (
    ApiPolicy,
    FrozenPolicy,
    FullPolicy,
    LoraPolicy,
    ScriptedPolicy,
)

SCRIPT = ScriptedPolicy()


class Seen(Relay):
    """Shows images to b alone."""

    @property
    def image_roles(self) -> tuple[str, ...]:
        return ("b",)


def problems(env: Relay, roles: dict[str, str], **policies: object) -> Sequence[str]:
    return cross_check({"roles": roles, "policies": policies}, env)


def model(folder: Path, **config: object) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("kind", [FullPolicy, LoraPolicy, FrozenPolicy])
@pytest.mark.parametrize(
    "config",
    [{"model_type": "llama"}, {"model_type": "unheard_of", "vision_config": {}}],
    ids=["reads", "another family"],
)
def test_a_model_that_cannot_see_is_refused_at_start_up(
    kind: Any, config: dict[str, object], tmp_path: Path
) -> None:
    policy = kind(model=model(tmp_path / "m", **config))
    (problem,) = problems(Seen(), {"a": "script", "b": "p"}, p=policy, script=SCRIPT)
    assert "policies.p: 'relay-v1' shows images to 'b', and" in problem
    assert f"'{policy.model}' is text-only" in problem
    assert "use a VLM (qwen2_5_vl, " in problem
    assert "scripted player" in problem
    (problem,) = problems(Seen(), {}, p=policy)
    assert problem.startswith("policies.p: ")


def test_a_server_is_sent_text_alone_unless_it_is_said_to_see() -> None:
    (problem,) = problems(Seen(), {}, p=ApiPolicy(url="http://h", model="m"))
    assert "the served model ('m') is sent only text; set supports_images = true" in problem
    assert not problems(Seen(), {}, p=ApiPolicy(url="http://h", model="m", supports_images=True))


def test_a_vlm_may_be_shown_images(tmp_path: Path) -> None:
    policy = FullPolicy(model=model(tmp_path / "m", model_type="qwen2_5_vl", vision_config={}))
    assert problems(Seen(), {}, p=policy) == []


def test_a_policy_that_is_shown_no_image_need_not_see() -> None:
    model = FullPolicy(model="m")
    assert problems(Seen(), {"a": "p", "b": "script"}, p=model, script=SCRIPT) == []
    assert problems(Relay(), {"a": "p", "b": "p"}, p=model) == []
    assert problems(Seen(), {}, p=SCRIPT) == []


def test_images_without_pillow_are_refused_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pettingllms.config.checks, "can_decode", lambda: False)
    (problem,) = problems(Seen(), {}, p=SCRIPT)
    assert "pip install 'pettingllms[vision]'" in problem
