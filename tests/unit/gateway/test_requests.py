"""Requested settings are applied, rejected, or reported as ignored; none is dropped silently."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toys import AnsweringSampler

from pettingllms.errors import SamplerError
from pettingllms.gateway.calls import Answered, Call, CallError
from pettingllms.gateway.dialects import anthropic_messages, openai_chat, openai_responses
from pettingllms.gateway.dialects.openai_completions import CompletionRequest
from pettingllms.gateway.dialects.openai_completions import read as read_completion
from pettingllms.gateway.roles import RoleMap
from pettingllms.gateway.session import Limits, Session, cut_at_stop
from pettingllms.gateway.templates import Template
from pettingllms.gateway.tool_replies import calls_of
from pettingllms.inference.http import JsonRenderer
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Ids, Rewards, Scored, Task, Turn, VersionRun

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "run", "parameters": {}}}
CALL = '<tool_call>\n{"name": "run", "arguments": {}}\n</tool_call>'


def chat(*messages: Any, **options: Any) -> Call:
    body = {"messages": list(messages) or [USER], **options}
    return openai_chat.read(openai_chat.ChatRequest.model_validate(body), {})


def session(
    text: str = "hello",
    trained: bool = True,
    limits: Limits | None = None,
    renderer: Any = None,
) -> Session:
    renderer = renderer or ByteRenderer()
    sampler = AnsweringSampler(lambda *_: text)
    players = {"a": Player("p", sampler, renderer, trained)}
    episode = Episode("t/0", "program-v1", Task("t"), 0)
    templates = {"a": Template(renderer)}
    return Session(episode, players, RoleMap(("a",)), templates, 1, limits or Limits())


def answer(opened: Session, *calls: Call) -> list[Answered]:
    async def all_of_them() -> list[Answered]:
        return [await opened.answer(call, None) for call in calls]

    return asyncio.run(all_of_them())


def guide_of(opened: Session) -> Any:
    sampler: Any = opened.players["a"].sampler
    return json.loads(sampler.requests[-1].guide)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(
    "asked",
    [
        {"tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
    ],
)
def test_a_required_tool_must_be_in_tools(asked: dict[str, Any], trained: bool) -> None:
    opened = session(trained=trained)
    with pytest.raises(CallError, match="'tools' does not contain it") as rejected:
        answer(opened, chat(**asked))
    assert (rejected.value.status, rejected.value.param) == (400, "tool_choice")
    assert opened.num_served == 0


def test_a_learning_role_reports_an_ignored_tool_choice() -> None:
    asked = chat(tools=[TOOL], tool_choice="required")
    assert answer(session(), asked)[0].ignored == ("tool_choice",)
    held = session(trained=False)
    assert answer(held, asked)[0].ignored == ()
    assert guide_of(held)["properties"]["name"] == {"const": "run"}


def test_a_required_tool_call_takes_precedence_over_a_schema() -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "title": "form"}}}
    held = session(trained=False)
    answer(held, chat(tools=[TOOL], tool_choice="required", response_format=form))
    assert "name" in guide_of(held)["properties"]
    answer(held, chat(tools=[TOOL], response_format=form))
    assert guide_of(held)["title"] == "form"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"First ```py\nx\n``` then {CALL}", "First ```py\nx\n``` then"),
        ('{"name": "run", "arguments": {"code": "```py\\nx\\n```"}}', ""),
        ('So:\n```json\n{"name": "run"}\n```', "So:"),
        (f"Now. {CALL}", "Now."),
    ],
)
def test_text_before_a_tool_call_is_complete(text: str, said: str) -> None:
    found, calls = calls_of(text, chat(tools=[TOOL]))
    assert found == said
    assert [call.name for call in calls] == ["run"]


def test_a_template_with_strict_tool_call_ids_accepts_ours() -> None:
    class Strict(ByteRenderer):
        """Like Mistral's template."""

        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
            given = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
            if any(len(one) != 9 or not one.isalnum() for one in (*calls, *given)):
                raise SamplerError("Tool call IDs should be alphanumeric strings with length 9!")
            return f"{list(tools)}\n" * bool(tools) + super().chat_text(messages, tools, opens)

    opened = session(CALL, renderer=Strict())
    assert opened.templates["a"].has_tools
    (first,) = answer(opened, chat(tools=[TOOL]))
    (call,) = first.replies[0].calls
    function = {"name": call.name, "arguments": call.arguments}
    asked = {"role": "assistant", "tool_calls": [{"id": call.id, "function": function}]}
    given = {"role": "tool", "tool_call_id": call.id, "content": "4"}
    answer(opened, chat(USER, asked, given, tools=[TOOL]))
    assert [turn.links.extends for turn in opened.episode.turns] == [None, 0]


def test_deprecated_functions_are_not_ignored() -> None:
    with pytest.raises(CallError, match="'tools'"):
        chat(functions=[{"name": "run"}])


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt"])
def test_responses_reject_references_to_stored_chats(name: str) -> None:
    value = {"id": "x"} if name == "prompt" else "x"
    body = openai_responses.ResponsesRequest.model_validate({"input": "hi", name: value})
    with pytest.raises(CallError, match="send the whole chat") as rejected:
        openai_responses.read(body, {})
    assert rejected.value.param == name


def test_responses_have_the_requested_log_probs() -> None:
    def asked(**options: Any) -> openai_responses.ResponsesRequest:
        return openai_responses.ResponsesRequest.model_validate({"input": "hi", **options})

    with_them = asked(include=["message.output_text.logprobs"])
    for body, num_logprobs in ((asked(), 0), (with_them, len("hello"))):
        opened = session("hello")
        (answered,) = answer(opened, openai_responses.read(body, {}))
        (item,) = openai_responses.write(answered, body)["output"]
        found = [one["logprob"] for one in item["content"][0]["logprobs"]]
        logprobs = opened.episode.turns[0].logprobs
        assert logprobs is not None
        assert found == logprobs.tolist()[:num_logprobs]
    with pytest.raises(CallError, match="only log-probs of sampled tokens"):
        openai_responses.read(asked(top_logprobs=3), {})


def test_tools_that_the_vendor_runs_are_rejected() -> None:
    def read(kind: str | None) -> Call:
        tool = {"name": "search", "input_schema": {}} | ({"type": kind} if kind else {})
        body = {"max_tokens": 5, "messages": [USER], "tools": [tool]}
        request = anthropic_messages.MessagesRequest.model_validate(body)
        return anthropic_messages.read(request, {})

    assert [tool.name for kind in (None, "custom") for tool in read(kind).tools] == ["search"] * 2
    with pytest.raises(CallError, match="web_search_20250305"):
        read("web_search_20250305")


def test_ids_outside_the_vocabulary_never_reach_an_engine() -> None:
    def asked(*ids: int) -> Call:
        return read_completion(CompletionRequest.model_validate({"prompt": list(ids)}), {})

    opened = session()
    with pytest.raises(
        CallError, match="token id 256 is not in the model's vocabulary of 256"
    ) as rejected:
        answer(opened, asked(97, 256))
    assert rejected.value.status == 400
    answer(opened, asked(97, 255))
    sampler: Any = opened.players["a"].sampler
    assert [request.prompt_ids.tolist() for request in sampler.requests] == [[97, 255]]
    with pytest.raises(CallError, match="only accepts chats"):
        answer(session(renderer=JsonRenderer()), asked(97))


def test_several_replies_share_the_remaining_tokens() -> None:
    limits = Limits(max_episode_tokens=10)
    opened = session("hello", limits=limits)
    with pytest.raises(CallError, match="cut after 10 tokens"):
        answer(opened, chat(n=4))
    assert opened.episode.num_tokens <= 10
    assert opened.episode.failure is not None
    opened = session("hello", limits=limits)
    (answered,) = answer(opened, chat(n=2))
    assert [reply.text for reply in answered.replies] == ["hello"] * 2


def test_a_closed_episode_accepts_no_calls_or_rewards() -> None:
    opened = session(limits=Limits(max_calls=1))
    opened.deliver(answer(opened, chat())[0])
    opened.close()
    with pytest.raises(CallError, match="the episode is over"):
        answer(opened, chat())
    with pytest.raises(CallError, match="the episode is over"):
        opened.add_rewards(Rewards(team=Scored(1.0)))
    assert opened.episode.failure is None
    assert (opened.num_served, opened.num_recorded) == (1, 1)


def test_a_chat_with_another_tool_result_is_another_chat() -> None:
    def after(name: str, *more: Any) -> Call:
        called = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [called]}
        given = {"role": "tool", "tool_call_id": "c", "name": name, "content": "4"}
        return chat(USER, asked, given, *more)

    said = {"role": "assistant", "content": "hello"}
    opened = session()
    answer(opened, after("run"), after("run", said, USER), after("other", said, USER))
    assert [turn.links.extends for turn in opened.episode.turns] == [None, 0, None]


def test_a_stop_string_also_cuts_the_versions_of_tokens() -> None:
    """New weights arrived after "he", and again after "hello"."""
    ids = np.frombuffer(b"hello you", np.uint8).astype(np.int32)
    later = VersionRun(4, 3), VersionRun(5, 4)
    turn = Turn("r", "p", (), ids, ids, None, "hello you", 3, later_versions=later)
    template: Any = SimpleNamespace(decode=lambda ids: bytes(ids.tolist()).decode())
    for stop, expected in (("he", [(3, 2)]), ("l", [(3, 2), (4, 1)]), ("ou", [(3, 2), *later])):
        cut, _ = cut_at_stop(turn, [stop], template)
        assert cut.version_runs == tuple(expected)


def test_a_stop_string_also_cuts_the_token_ends() -> None:
    class Parts(ByteRenderer):
        def ends(self, ids: Ids, text: str) -> Any:
            return np.arange(1, len(ids) + 1, dtype=np.int32)

    opened = session("hello you", renderer=Parts())
    answer(opened, chat(stop=["lo"]))
    (turn,) = opened.episode.turns
    assert turn.text == "hel"
    assert turn.ends is not None
    assert turn.ends.tolist() == [1, 2, 3, 3, 3]
    assert len(turn.ends) == len(turn.response_ids)
