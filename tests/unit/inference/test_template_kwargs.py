"""`chat_template_kwargs` of a policy: the same prompt ids wherever its prompts are rendered."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
transformers = pytest.importorskip("transformers")

from test_http_sampler import reply, serving

from pettingllms.cluster.team import Team
from pettingllms.config import RunConfig, parse_config
from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import ConfigError, ModelError
from pettingllms.gateway.calls import ChatMessage
from pettingllms.gateway.templates import Template
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.models import make_tiny
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE
from pettingllms.training.export import export
from pettingllms.training.sft import renderers_of, training_item
from pettingllms.types import Message, SampleRequest, Turn, system, user

QWEN3 = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
    {%- if effort is defined %}{{- 'effort ' ~ effort }}{%- endif %}
{%- endif %}
"""
"""The end of Qwen3's own template, and one more argument."""
MESSAGES = (system("You plan."), user("Go left\n or right?"))
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=["You plan. <think> effort"])
    (folder / "chat_template.jinja").write_text(QWEN3)
    return folder


def expected(folder: Path, **given: Any) -> list[int]:
    """What Transformers makes of the messages."""
    chat = [{"role": m.speaker, "content": m.content} for m in MESSAGES]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=False, **given
    )


def team_config(model: Path, **kwargs: Any) -> RunConfig:
    policy = {"kind": "lora", "model": str(model)}
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"thinks": policy, "acts": {**policy, "chat_template_kwargs": kwargs}},
            "roles": {"planner": "thinks", "checker": "acts"},
        }
    )


@pytest.mark.parametrize(
    "given", [OFF, {"enable_thinking": True}, {"effort": 'low "x" é\n'}, {**OFF, "effort": 2}]
)
def test_ids_are_those_of_transformers(given: dict[str, Any], model: Path) -> None:
    ids = ChatRenderer(model, given).render(MESSAGES).tolist()
    assert ids == expected(model, **given)
    assert (ids != ChatRenderer(model).render(MESSAGES).tolist()) is (
        given != {"enable_thinking": True}
    )


def test_policies_of_one_model_render_each_with_its_own_arguments(model: Path) -> None:
    """In rollouts, evaluation and judges, which take renderers from the team."""
    team: Any = Team(team_config(model, **OFF), print)
    team._engines = {group.name: SimpleNamespace() for group in team._groups}
    team._learners = {}
    team._add_samplers({group.name: model for group in team._groups})
    thinks, acts = (team._samplers.renderers[name] for name in ("thinks", "acts"))
    assert thinks.render(MESSAGES).tolist() == expected(model)
    assert acts.render(MESSAGES).tolist() == expected(model, **OFF)


def test_programs_of_the_gateway_get_the_same_prompt(model: Path) -> None:
    chat = [ChatMessage(m.speaker, m.content) for m in MESSAGES]
    whole = Template(ChatRenderer(model, OFF)).whole(chat, [])
    assert whole.tolist() == expected(model, **OFF)


def test_sft_learns_the_same_prompt(model: Path) -> None:
    renderer = renderers_of(team_config(model, **OFF))["acts"]
    none = np.empty(0, np.int32)
    turn = Turn("checker", "script", MESSAGES, none, none, None, "left", None)
    assert training_item(turn, "acts", renderer).prompt_ids.tolist() == expected(model, **OFF)


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("given", [OFF, {**OFF, "effort": 'low "x" {{ é }}\n'}])
@pytest.mark.parametrize("start", ["", "\n", " x"])
def test_an_exported_model_renders_like_training_without_arguments(
    start: str, given: dict[str, Any], kind: str, model: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in model.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    (source / "chat_template.jinja").write_text(start + QWEN3.lstrip())
    policy = {"kind": kind, "model": str(source), "chat_template_kwargs": given}
    config = parse_config(
        {"env": {"id": "plan_path-v1"}, "algo": {"type": "grpo"}, "policies": {"p": policy}}
    )
    saved = {"p": dict.fromkeys((MODEL_FILE, ADAPTER_FILE, ADAPTER_CONFIG), b"")}
    export(config, saved, "p", tmp_path / "out")
    if kind == "lora":  # as with `vllm serve BASE --chat-template`
        text = (tmp_path / "out" / "chat_template.jinja").read_text()
        (source / "chat_template.jinja").write_text(text)
    folder = tmp_path / "out" if kind == "full" else source
    assert expected(folder) == ChatRenderer(source, given).render(MESSAGES).tolist()
    assert expected(folder, enable_thinking=True) != expected(folder)  # requests may override


def test_an_argument_that_the_template_never_reads_is_rejected(model: Path) -> None:
    with pytest.raises(ModelError, match="never reads 'enable_thinkin'"):
        ChatRenderer(model, {"enable_thinkin": False})


@pytest.mark.parametrize("name", ["tools", "tokenize", "no-name"])
def test_names_that_cannot_be_arguments_are_rejected(name: str, model: Path) -> None:
    with pytest.raises(ConfigError, match=f"policies.acts.chat_template_kwargs: '{name}'"):
        team_config(model, **{name: True})


def test_a_server_is_sent_them(model: Path) -> None:
    with serving([reply("left")]) as (url, asked):
        sampler = HttpSampler(ApiPolicy(url=url, model="m", chat_template_kwargs=OFF))
        ids = JsonRenderer().render([Message("user", "Go")])
        request = SampleRequest("p", "r", ids, 1, 8, 0, "t")

        async def ask() -> None:
            await sampler.sample(request)
            await sampler.close()

        asyncio.run(ask())
    assert asked[0]["body"]["chat_template_kwargs"] == json.loads(json.dumps(OFF))
