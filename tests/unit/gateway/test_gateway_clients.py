"""The vendors' clients work with the gateway, with and without streaming."""

import json
from typing import Any

import pytest

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

from gateways import Served, prompt_of, served
from pydantic import BaseModel

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "How it is.", "parameters": WEATHER},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
USER = {"role": "user", "content": "hi"}


class City(BaseModel):
    name: str
    people: int


def test_a_chat_completion_has_what_the_client_reads() -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("planner")
        return await client.chat.completions.create(
            model="any", messages=[USER], logprobs=True, max_tokens=50
        ), gate.close()

    found, episode = served(work)
    (turn,) = episode.turns
    assert found.choices[0].message.content == turn.text == "hello from planner, 22"
    assert found.choices[0].finish_reason == "stop"
    assert found.usage.prompt_tokens == len(turn.prompt_ids)
    assert found.usage.completion_tokens == len(turn.response_ids)
    sampled = [round(t.logprob, 5) for t in found.choices[0].logprobs.content]
    assert sampled == [round(float(p), 5) for p in turn.logprobs]
    assert (turn.role, turn.policy, turn.policy_version) == ("planner", "planner_policy", 7)
    assert episode.failure is None
    assert len(episode.steps) == 1


def test_a_reply_cut_inside_a_character_ends_before_it_and_is_continued() -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("planner")
        first = await client.chat.completions.create(model="any", messages=[USER])
        said = {"role": "assistant", "content": first.choices[0].message.content}
        await client.chat.completions.create(model="any", messages=[USER, said, USER])
        return first, gate.close()

    first, episode = served(work, answer=lambda request, number: "hello\N{REPLACEMENT CHARACTER}")
    assert first.choices[0].message.content == "hello"
    assert episode.turns[1].links.extends == 0


def test_a_chat_completion_streams_the_same_text() -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("planner")
        stream = await client.chat.completions.create(
            model="any", messages=[USER], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        return chunks, gate.close()

    chunks, episode = served(work)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == episode.turns[0].text
    assert len(chunks) > 4
    assert chunks[-1].usage.completion_tokens == len(episode.turns[0].response_ids)
    assert episode.turns[0].credit.failure is None


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_are_returned(stream: bool) -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("worker")
        asked = {"model": "any", "messages": [USER], "tools": [TOOL]}
        if not stream:
            done = await client.chat.completions.create(**asked)
            return done.choices[0].message.tool_calls, done.choices[0].finish_reason, gate
        chunks = [c async for c in await client.chat.completions.create(**asked, stream=True)]
        calls = [c.choices[0].delta.tool_calls for c in chunks if c.choices[0].delta.tool_calls]
        return calls[0], chunks[-1].choices[0].finish_reason, gate

    calls, finish, gate = served(work, answer=lambda *_: f"Let me look. {CALL}")
    assert finish == "tool_calls"
    assert calls[0].function.name == "weather"
    assert json.loads(calls[0].function.arguments) == {"city": "Ulm"}
    assert '"name": "weather"' in prompt_of(gate.sampler.requests[0]), (
        "the prompt describes the tool"
    )


def test_schemas_are_shown_to_learning_roles_and_enforced_for_others() -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("worker")
        done = await client.chat.completions.parse(
            model="any", messages=[USER], response_format=City
        )
        return done.choices[0].message.parsed, gate.sampler.requests[0], gate.close()

    def answer(*_: Any) -> str:
        return '{"name": "Ulm", "people": 126000}'

    parsed, request, episode = served(work, answer=answer)
    assert parsed == City(name="Ulm", people=126000)
    assert request.guide is None
    assert "people" in prompt_of(request), "the prompt of a learning role contains the schema"
    assert not episode.turns[0].guided
    parsed, request, episode = served(work, answer=answer, trained=False)
    assert json.loads(request.guide)["properties"].keys() == {"name", "people"}
    assert "people" not in prompt_of(request)
    assert episode.turns[0].guided


@pytest.mark.parametrize("stream", [False, True])
def test_completions_take_text_and_ids(stream: bool) -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("worker")
        for prompt in ("abc", [97, 98, 99]):
            done = await client.completions.create(
                model="any", prompt=prompt, stream=stream, max_tokens=5
            )
            if stream:
                parts = [c async for c in done]
                text, finish = "".join(c.choices[0].text for c in parts), parts[-1].choices[0]
            else:
                text, finish = done.choices[0].text, done.choices[0]
            assert (text, finish.finish_reason) == ("hello", "length")
        return gate

    gate = served(work)
    first, second = gate.sampler.requests
    assert first.prompt_ids.tolist() == second.prompt_ids.tolist() == [97, 98, 99]


@pytest.mark.parametrize("stream", [False, True])
def test_responses_give_text_and_calls(stream: bool) -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("worker")
        tool = {"type": "function", **TOOL["function"]}
        asked = {"model": "any", "instructions": "Be kind.", "tools": [tool]}
        if stream:
            async with client.responses.stream(**asked, input="hi") as events:
                first = await events.get_final_response()
        else:
            first = await client.responses.create(**asked, input="hi")
        (call,) = [item for item in first.output if item.type == "function_call"]
        chat = [
            {"role": "user", "content": "hi"},
            *[item.model_dump() for item in first.output],
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ]
        second = await client.responses.create(**asked, input=chat)
        return first, call, second, gate.close()

    answers = iter([f"One moment. {CALL}", "It is sunny."])
    first, call, second, episode = served(work, answer=lambda *_: next(answers))
    assert first.output_text == "One moment."
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Ulm"})
    assert second.output_text == "It is sunny."
    assert second.usage.total_tokens == len(episode.turns[1].prompt_ids) + 12
    assert episode.turns[1].links.extends == 0, (
        "items of the first response match the recorded reply"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages_give_text_and_calls(stream: bool) -> None:
    async def work(gate: Served) -> Any:
        client = gate.anthropic("worker")
        tool = {"name": "weather", "description": "How it is.", "input_schema": WEATHER}
        asked = {"model": "any", "max_tokens": 200, "system": "Be kind.", "tools": [tool]}
        if stream:
            async with client.messages.stream(**asked, messages=[USER]) as events:
                first = await events.get_final_message()
        else:
            first = await client.messages.create(**asked, messages=[USER])
        (use,) = [block for block in first.content if block.type == "tool_use"]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
        said = {"role": "assistant", "content": [b.model_dump() for b in first.content]}
        chat = [USER, said, {"role": "user", "content": [result]}]
        second = await client.messages.create(**asked, messages=chat)
        return first, use, second, gate.close()

    answers = iter([f"One moment. {CALL}", "It is sunny."])
    first, use, second, episode = served(work, answer=lambda *_: next(answers))
    assert first.content[0].text == "One moment."
    assert first.stop_reason == "tool_use"
    assert (use.name, use.input) == ("weather", {"city": "Ulm"})
    assert (second.content[0].text, second.stop_reason) == ("It is sunny.", "end_turn")
    assert second.usage.output_tokens == 12
    assert episode.turns[1].links.extends == 0


def test_stop_strings_cut_text_and_ids() -> None:
    async def work(gate: Served) -> Any:
        client = gate.anthropic("worker")
        done = await client.messages.create(
            model="any", max_tokens=200, messages=[USER], stop_sequences=["from"]
        )
        return done, gate.close()

    done, episode = served(work)
    (turn,) = episode.turns
    assert (done.content[0].text, done.stop_sequence) == ("hello ", "from")
    assert bytes(turn.response_ids.tolist()) == b"hello from"
    assert len(turn.logprobs) == len("hello from")


def test_errors_have_the_types_that_clients_expect() -> None:
    async def work(gate: Served) -> None:
        client = gate.openai("planner", max_retries=0)
        with pytest.raises(openai.BadRequestError, match="top_p"):
            await client.chat.completions.create(model="m", messages=[USER], top_p=0.5)
        wrong = gate.openai(api_key="pl-no", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            await wrong.chat.completions.create(model="m", messages=[USER])
        other = gate.anthropic(api_key="pl-no", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError):
            await other.messages.create(model="m", max_tokens=5, messages=[USER])
        assert gate.turns == []
        assert {model.id async for model in client.models.list()} == {"planner"}

    served(work)


def test_a_learning_policy_ignores_the_programs_sampling_settings() -> None:
    async def work(gate: Served) -> Any:
        client = gate.openai("planner")
        raw = await client.chat.completions.with_raw_response.create(
            model="m", messages=[USER], temperature=0.2, seed=5
        )
        return raw.headers.get("x-pettingllms-set-aside"), gate.sampler.requests[0]

    aside, request = served(work)
    assert aside == "temperature, seed"
    assert request.temperature == 1.0
    assert request.seed != 5
    resting, same = served(work, trained=False, rests=True)
    assert (resting, same.temperature, same.seed) == (aside, request.temperature, request.seed)
    aside, request = served(work, trained=False)
    assert aside is None
    assert (request.temperature, request.seed) == (0.2, 5)
