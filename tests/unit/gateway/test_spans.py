"""Spans contain roles and token counts; texts are opt-in and never contain secrets."""

import json
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from gateways import Served, served
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pettingllms.gateway.spans import Spans, known_secrets, redact_all, redacted
from pettingllms.gateway.token_counts import Price, count_roles

SECRET = "correct-horse-battery"  # noqa: S105 - only for this test


def exported(with_text: bool, secret: str = SECRET) -> Any:
    exporter = InMemorySpanExporter()

    async def work(gate: Served) -> Any:
        import httpx

        spans = Spans(exporter, with_text)
        gate.session.on_answer = lambda call, answered, start, end: spans.add(
            gate.session, call, answered, start, end
        )
        access = gate.agents.openai("planner")
        said = f"the password is {secret}, the key {access['api_key']}"
        async with httpx.AsyncClient() as http:
            for _ in range(2):
                await http.post(
                    f"{access['base_url']}/chat/completions",
                    json={"model": "m", "messages": [{"role": "user", "content": said}]},
                    headers={"authorization": f"Bearer {access['api_key']}"},
                )
        spans.close()
        return gate.close(), access["api_key"]

    episode, key = served(work)
    return exporter.get_finished_spans(), episode, key


def test_a_span_has_role_and_tokens() -> None:
    spans, episode, _ = exported(with_text=False)
    assert len(spans) == 2
    attributes = spans[0].attributes
    assert spans[0].name == "chat m"
    assert attributes["gen_ai.agent.name"] == "planner"
    assert attributes["gen_ai.usage.input_tokens"] == len(episode.turns[0].prompt_ids)
    assert attributes["gen_ai.usage.output_tokens"] == len(episode.turns[0].response_ids)
    assert spans[0].end_time > spans[0].start_time
    assert SECRET not in json.dumps(dict(attributes))


def test_secrets_are_redacted_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    spans, _, key = exported(with_text=True)
    text = spans[0].attributes["gen_ai.input.messages"]
    assert "the password is [secret], the key [key]" in text
    assert key not in text
    assert redacted("abc", ["b"]) == "a[secret]c"


@pytest.mark.parametrize("inside", ["text", "arguments", "JSON in a text"])
def test_secrets_are_redacted_in_all_json_escapes(
    inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'pass"w\u00f6rd\\12345'  # noqa: S105 - only for this test
    monkeypatch.setenv("MY_KEY", secret)
    spans, _, _ = exported(with_text=True, secret=secret)
    data: Any = {"text": secret, "arguments": [{secret: secret}]}.get(inside, json.dumps([secret]))
    for text in (
        spans[0].attributes["gen_ai.input.messages"],
        json.dumps(redact_all(known_secrets(), data)),
    ):
        assert "[secret]" in text
        assert "12345" not in text


def test_roles_are_counted_with_their_cost() -> None:
    _, episode, _ = exported(with_text=False)
    (count,) = count_roles(episode.turns, {"planner": Price(1.0, 2.0)})
    prompt, reply = (sum(len(getattr(t, name)) for t in episode.turns)
                     for name in ("prompt_ids", "response_ids"))  # fmt: skip
    assert (count.role, count.num_calls, count.num_failed) == ("planner", 2, 0)
    assert (count.num_prompt_tokens, count.num_reply_tokens) == (prompt, reply)
    assert count.cost == pytest.approx((prompt + 2 * reply) / 1e6)
