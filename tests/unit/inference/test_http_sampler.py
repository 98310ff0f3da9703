"""The HTTP sampler against a real server on loopback."""

import asyncio
import base64

import pytest
from chat_servers import reply, serving

pytest.importorskip("httpx")

from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import ConfigError, SamplerError
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.types import (
    Failed,
    Message,
    PromptRefused,
    Sample,
    SampleRequest,
    Usage,
    images_of,
    system,
    user,
)

KEY = "PETTINGLLMS_TEST_KEY"


def ask(url: str, num_samples: int = 1, key: str = "") -> list[Sample | Failed]:
    messages = [Message("system", "Wähle."), Message("user", 'say "hi"')]
    request = SampleRequest(
        "p", "r", JsonRenderer().render(messages), num_samples, 5, 2**62, "t", temperature=0.5
    )
    return sampled(url, request, key)


def sampled(url: str, request: SampleRequest, key: str = "") -> list[Sample | Failed]:
    async def go() -> list[Sample | Failed]:
        sampler = HttpSampler(ApiPolicy(url=url, model="m", key=key))
        try:
            return await sampler.sample(request)
        finally:
            await sampler.close()

    return asyncio.run(go())


def test_messages_go_out_as_they_are_and_text_comes_back() -> None:
    with serving([reply("grüß dich, the whole of it", "length")]) as (url, asked):
        (sample,) = ask(url)
    assert isinstance(sample, Sample)
    assert JsonRenderer().decode(sample.ids) == "grüß dich, the whole of it"
    assert (sample.finish, sample.logprobs) == ("length", None)
    body = asked[0]["body"]
    assert body["messages"][0] == {"role": "system", "content": "Wähle."}
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.5, 5)
    assert asked[0]["path"] == "/v1/chat/completions"


def test_images_go_out_as_parts_before_the_text_each_in_its_place() -> None:
    pytest.importorskip("PIL")
    from pictures import plain

    red, blue = plain("red", (8, 8)), plain("blue", (9, 9))
    messages = [system("You see."), user("both", red, blue), user("again", red), user("none")]
    ids = JsonRenderer(supports_images=True).render(messages)
    assert len(ids) < 1000  # the record has the images once, beside the prompt
    request = SampleRequest("p", "r", ids, 1, 5, 1, "t", images=images_of(messages))
    with serving([reply("B2")]) as (url, asked):
        (sample,) = sampled(url, request)
    assert JsonRenderer().decode(sample.ids) == "B2"
    chat = asked[0]["body"]["messages"]
    assert chat[0]["content"] == "You see."
    assert chat[3]["content"] == "none"
    found = [
        base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        for message in chat[1:3]
        for part in message["content"][:-1]
    ]
    assert found == [red.data, blue.data, red.data]
    assert chat[1]["content"][-1] == {"type": "text", "text": "both"}


def test_a_text_that_looks_like_a_part_stays_a_text() -> None:
    odd = '[{"type": "image_url", "image_url": {"url": "x"}}]'
    request = SampleRequest(
        "p", "r", JsonRenderer(supports_images=True).render([user(odd)]), 1, 5, 1, "t"
    )
    with serving([reply("no")]) as (url, asked):
        sampled(url, request)
    assert asked[0]["body"]["messages"][0]["content"] == odd


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2)),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens": "9", "completion_tokens": 2}, None),
        ({"prompt_tokens": 9, "completion_tokens": -2}, None),
        ([9, 2], None),
        (None, None),
    ],
)
def test_tokens_are_those_that_the_server_counts_if_it_does(usage, expected) -> None:
    status, answer = reply("a")
    with serving([(status, {**answer, "usage": usage})]) as (url, _):
        (sample,) = ask(url)
    assert isinstance(sample, Sample)
    assert sample.usage == expected


def test_each_reply_has_a_distinct_seed() -> None:
    with serving([reply("a")]) as (url, asked):
        assert len(ask(url, 3)) == 3
    assert len({one["body"]["seed"] for one in asked}) == 3


def test_a_busy_server_is_asked_again() -> None:
    with serving([(503, {}), (429, {}), reply("at last")]) as (url, asked):
        (sample,) = ask(url)
    assert isinstance(sample, Sample)
    assert len(asked) == 3


def test_a_refusal_is_final() -> None:
    with (
        serving([(401, {"error": "no"})]) as (url, asked),
        pytest.raises(SamplerError, match="401"),
    ):
        ask(url)
    assert len(asked) == 1


def test_an_answer_that_is_no_completion_is_a_failure() -> None:
    with serving([(200, {"choices": []})]) as (url, _):
        (sample,) = ask(url)
    assert isinstance(sample, Failed)
    assert sample.owner == "sampler"


def test_the_key_is_sent_and_never_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    with serving([reply("a")]) as (url, asked):
        ask(url, key=KEY)
        ask(url)
    assert [one["auth"] for one in asked] == ["Bearer secret", None]
    with pytest.raises(ConfigError, match="unencrypted") as caught:
        HttpSampler(ApiPolicy(url="http://example.com/v1", model="m", key=KEY))
    assert "secret" not in str(caught.value)
    HttpSampler(ApiPolicy(url="https://example.com/v1", model="m", key=KEY))
    monkeypatch.delenv(KEY)
    with pytest.raises(ConfigError, match=f"{KEY} is not set"):
        HttpSampler(ApiPolicy(url="https://example.com/v1", model="m", key=KEY))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_prompt_that_the_server_rejects_is_told_from_a_server_that_is_down(status: int) -> None:
    with serving([(status, {"error": "maximum context length is 2048 tokens"})]) as (url, asked):
        (found,) = ask(url)
    assert isinstance(found, PromptRefused)
    assert "maximum context length" in found.reason
    assert len(asked) == 1


def test_a_reply_that_a_filter_cut_is_no_reply() -> None:
    with serving([reply("Well, you", "content_filter")]) as (url, _):
        (found,) = ask(url)
    assert isinstance(found, PromptRefused)
    assert "content filter" in found.reason


@pytest.mark.parametrize(("guide", "form"), [("{}", "json_object"), ('{"a": 1}', "json_schema")])
def test_a_reply_is_held_to_its_schema_or_to_any_object(guide: str, form: str) -> None:
    prompt = JsonRenderer().render([Message("user", "hi")])
    request = SampleRequest("p", "r", prompt, 1, 5, 1, "t", guide=guide)
    with serving([reply("{}")]) as (url, asked):
        sampled(url, request)
    told = asked[0]["body"]["response_format"]
    assert told["type"] == form
    assert ("json_schema" in told) == (form == "json_schema")
