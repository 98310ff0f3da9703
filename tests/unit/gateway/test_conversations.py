"""Chats extend the sampled ids; rewritten chats start a new segment, which is recorded."""

import asyncio
import json
import random
from typing import Any

import httpx
import numpy as np
import pytest
from gateways import Served, prompt_of, say_hello, served
from toys import AnsweringSampler

from pettingllms.gateway.calls import ChatMessage
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits
from pettingllms.gateway.templates import Template
from pettingllms.inference.http import JsonRenderer
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.scripted import ByteRenderer, text_ids
from pettingllms.types import SampleRequest

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name":"look","arguments":{"at":"door","n":1}}</tool_call>'


async def ask(
    gate: Served, http: httpx.AsyncClient, messages: list[Any], role: str = "worker", **more: Any
) -> dict[str, Any]:
    access = gate.agents.openai(role)
    answer = await http.post(
        f"{access['base_url']}/chat/completions",
        json={"model": "m", "messages": messages, **more},
        headers={"authorization": f"Bearer {access['api_key']}"},
    )
    assert answer.status_code == 200, answer.text
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return message


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_continued_chat_starts_with_the_sampled_ids() -> None:
    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient() as http:
            chat = [user("one")]
            chat += [await ask(gate, http, chat), user("two")]
            chat += [await ask(gate, http, chat), user("three")]
            await ask(gate, http, chat)
        return gate.close()

    episode = served(work)
    first, second, third = episode.turns
    assert [turn.links.extends for turn in episode.turns] == [None, 0, 1]
    for before, after in ((first, second), (second, third)):
        seen = np.concatenate([before.prompt_ids, before.response_ids])
        assert after.prompt_ids[: len(seen)].tolist() == seen.tolist()
    assert [step.metrics["new_segment"] for step in episode.steps] == [1, 0, 0]


@pytest.mark.parametrize("edit", ["reply", "question", "cut", "system", "tools", "role"])
def test_a_rewritten_chat_starts_a_new_segment(edit: str) -> None:
    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient() as http:
            chat: list[Any] = [{"role": "system", "content": "s"}, user("one")]
            chat += [await ask(gate, http, chat), user("two")]
            more: dict[str, Any] = {}
            match edit:
                case "reply":
                    chat[2] = {**chat[2], "content": chat[2]["content"] + "!"}
                case "question":
                    chat[1] = user("other")
                case "cut":
                    del chat[1]
                case "system":
                    chat[0]["content"] = "t"
                case "tools":
                    more = {"tools": [TOOL]}
            await ask(gate, http, chat, "planner" if edit == "role" else "worker", **more)
        return gate.close()

    episode = served(work)
    assert episode.turns[1].links.extends is None
    assert episode.steps[1].metrics["new_segment"] == 1


def test_a_tool_call_keeps_its_sampled_ids() -> None:
    """The program formats the call's JSON differently, and the prompt keeps the model's text."""
    answers = iter([f"I look. {CALL}", "done"])

    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient() as http:
            chat = [user("one")]
            reply = await ask(gate, http, chat, tools=[TOOL])
            (call,) = reply["tool_calls"]
            arguments = json.dumps(json.loads(call["function"]["arguments"]), indent=3)
            call["function"]["arguments"] = arguments
            result = {"role": "tool", "tool_call_id": call["id"], "content": "a cat"}
            await ask(gate, http, [*chat, reply, result], tools=[TOOL])
        return gate.close(), prompt_of(gate.sampler.requests[1])

    episode, prompt = served(work, answer=lambda *_: next(answers))
    assert episode.turns[1].links.extends == 0
    assert f"I look. {CALL}\n<user>\n<tool_response>\na cat\n" in prompt


def test_a_continued_chat_adds_the_end_token_to_a_cut_reply() -> None:
    class Ended(ByteRenderer):
        end = "|"

        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            chat = "".join(f"<{m['role']}>{m['content']}|\n" for m in messages)
            return chat + "<assistant>" * opens

    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient() as http:
            chat = [user("one")]
            reply = await ask(gate, http, chat, max_tokens=5)
            whole = await ask(gate, http, [*chat, reply, user("on")])
            await ask(gate, http, [*chat, reply, user("on"), whole, user("more")])
        return gate.close(), [prompt_of(request) for request in gate.sampler.requests]

    def answer(request: SampleRequest, number: int) -> str:
        return "hello there|"

    episode, prompts = served(work, answer=answer, renderer=Ended())
    assert [turn.links.extends for turn in episode.turns] == [None, 0, 1]
    assert prompts[1] == "<user>one|\n<assistant>hello|\n<user>on|\n<assistant>"
    assert prompts[2] == prompts[1] + "hello there|\n<user>more|\n<assistant>"


def test_templates_that_change_earlier_messages_are_reported() -> None:
    class Trims(ByteRenderer):
        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            last = len(messages) - 1
            kept = [
                {**m, "content": ""} if m["role"] == "assistant" and at < last else m
                for at, m in enumerate(messages)
            ]
            return super().chat_text(kept, tools, opens)

    class Decorates(ByteRenderer):
        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            text = super().chat_text(messages, tools, opens)
            return text.replace("<assistant>\nIt", "<assistant>\n<think></think>It")

    class Joins(ByteRenderer):
        def text_ids(self, text: str) -> Any:
            return text_ids(text.replace("'clock.\n", "*"))

    class Forgets(ByteRenderer):
        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            last = len(messages) - 1
            kept = [
                {**m, "content": m["content"].split("</think>")[-1]} if at < last else m
                for at, m in enumerate(messages)
            ]
            return super().chat_text(kept, tools, opens)

    assert Template(ByteRenderer()).fault == ""
    assert not Template(ByteRenderer()).drops_reasoning
    assert Template(Forgets()).fault == ""
    assert Template(Forgets()).drops_reasoning
    said: list[str] = []
    gateway = Gateway(said.append)
    players = [Player(name, AnsweringSampler(say_hello), kind()) for name, kind in
             (("good", ByteRenderer), ("trims", Trims), ("forgets", Forgets))]  # fmt: skip
    gateway.check({player.policy: player for player in players})
    assert ["'trims'" in said[0], "'forgets'" in said[1], len(said)] == [True, True, 2]
    assert "changes earlier messages" in Template(Trims()).fault
    assert "differently from" in Template(Decorates()).fault
    assert "tokenizer merges" in Template(Joins()).fault
    assert "whole chats" in Template(JsonRenderer()).fault


def test_a_template_with_tool_support_receives_tools() -> None:
    class Tooled(ByteRenderer):
        def chat_text(self, messages: Any, tools: Any, opens: bool) -> str:
            named = "".join(f"[{tool['function']['name']}]" for tool in tools)
            chat = [{**m, "content": m["content"] + str(m.get("tool_calls", ""))} for m in messages]
            return named + super().chat_text(chat, tools, opens)

    assert Template(Tooled()).has_tools
    assert not Template(ByteRenderer()).has_tools
    shown, tools = Template(Tooled()).shown([ChatMessage("user", "x")], [], None)
    assert (shown, tools) == ([ChatMessage("user", "x")], [])


async def converse(gate: Served, http: httpx.AsyncClient, number: int) -> int:
    rng = random.Random(number)
    more = {"tools": [TOOL]} if rng.random() < 0.5 else {}
    chat, num_kept = [user(f"chat {number}")], 0
    for _ in range(rng.randrange(1, 5)):
        reply = await ask(gate, http, chat, **more)
        if rng.random() < 0.2:
            await asyncio.gather(*(ask(gate, http, chat, **more) for _ in range(2)))
        rewrites = rng.random() < 0.2
        if rewrites:
            reply = {"role": "assistant", "content": f"better {rng.random()}"}
        chat.append(reply)
        chat += [
            {"role": "tool", "tool_call_id": call["id"], "content": "a cat"}
            for call in reply.get("tool_calls", [])
        ]
        chat.append(user(f"on {rng.random()}"))
        num_kept += not rewrites
    await ask(gate, http, chat, **more)
    return num_kept


def test_two_hundred_random_conversations_are_recorded_as_the_engine_saw_them() -> None:
    """With tools, edits and parallel calls; the oracle tracks the exact text of every chat."""

    def answer(request: SampleRequest, number: int) -> str:
        rng = random.Random(request.seed)
        if "<tools>" in prompt_of(request) and rng.random() < 0.5:
            return f"so {rng.random()} {CALL}"
        return f"said  {rng.random()}\n"

    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=20)) as http:
            kept = [await converse(gate, http, number) for number in range(200)]
        return gate.close(), gate.sampler.requests, sum(kept)

    episode, requests, num_kept = served(
        work, answer=answer, bounds=Bounds(calls_per_second=1e6), limits=Limits(max_calls=10**6)
    )
    seen = {request.prompt_ids.tobytes() for request in requests}
    assert len(episode.turns) == len(requests) > 500
    assert episode.failure is None
    for turn in episode.turns:
        assert turn.prompt_ids.tobytes() in seen
        assert turn.credit.failure is None
        assert len(turn.logprobs) == len(turn.response_ids)
        if turn.links.extends is not None:
            before = episode.turns[turn.links.extends]
            ids = np.concatenate([before.prompt_ids, before.response_ids])
            assert turn.prompt_ids[: len(ids)].tolist() == ids.tolist()
            added = bytes(turn.prompt_ids[len(ids) :].tolist()).decode()
            assert added.startswith("\n<user>\n")
            assert added.endswith("\n<assistant>\n")
    num_extending = sum(turn.links.extends is not None for turn in episode.turns)
    assert num_extending >= num_kept > 200
