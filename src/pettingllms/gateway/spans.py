"""Exports calls as OpenTelemetry spans, by the conventions for generative AI.

Spans contain names, roles and token counts. Prompts and replies are opt-in, with all secrets known
to this process redacted.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pettingllms.gateway.calls import Answered, Call
from pettingllms.gateway.session import Session

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
OWN_KEY = re.compile(r"pl-[A-Za-z0-9_-]{40,}")
MIN_CHARACTERS = 8
"""Minimum length of a secret: redacting shorter values would remove ordinary words."""


def known_secrets() -> list[str]:
    """Values of environment variables whose names suggest a secret, longest first, also in
    their JSON-escaped forms."""
    found = {
        form
        for name, value in os.environ.items()
        if SECRET_NAME.search(name) and len(value) >= MIN_CHARACTERS
        for form in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    }
    return sorted(found, key=len, reverse=True)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """A text with secrets and gateway keys replaced."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return OWN_KEY.sub("[key]", text)


def redact_all(secrets: Sequence[str], data: Any) -> Any:
    """Plain data with all strings redacted. Redacting its JSON would miss escaped characters."""
    if isinstance(data, str):
        return redacted(data, secrets)
    if isinstance(data, list):
        return [redact_all(secrets, one) for one in data]
    if isinstance(data, dict):
        return {redacted(name, secrets): redact_all(secrets, one) for name, one in data.items()}
    return data


class Spans:
    """Exports one span per call."""

    def __init__(self, exporter: "SpanExporter", with_text: bool = False) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(resource=Resource.create({"service.name": "pettingllms"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pettingllms.gateway")
        self._with_text = with_text

    def add(self, session: Session, call: Call, answered: Answered, start: int, end: int) -> None:
        """Export one call, with its start and end in nanoseconds."""
        from opentelemetry.trace import SpanKind

        first = answered.replies[0]
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat" if call.messages else "text_completion",
            "gen_ai.provider.name": "pettingllms",
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": first.turn.policy,
            "gen_ai.response.id": first.id,
            "gen_ai.response.finish_reasons": [reply.finish for reply in answered.replies],
            "gen_ai.usage.input_tokens": answered.num_prompt_tokens,
            "gen_ai.usage.output_tokens": answered.num_reply_tokens,
            "gen_ai.agent.name": answered.role,
            "gen_ai.conversation.id": session.episode.id,
            "pettingllms.policy_version": first.turn.policy_version or 0,
        }
        if self._with_text:
            attributes |= self._texts(call, answered)
        name = f"{attributes['gen_ai.operation.name']} {call.model}"
        span = self._tracer.start_span(name, None, SpanKind.SERVER, attributes, start_time=start)
        span.end(end)

    def close(self) -> None:
        """Export pending spans and shut down."""
        self._provider.shutdown()

    def _texts(self, call: Call, answered: Answered) -> dict[str, str]:
        secrets = known_secrets()
        prompt = [message.as_json() for message in call.messages]
        replies = [reply.as_message().as_json() for reply in answered.replies]
        return {
            "gen_ai.input.messages": json.dumps(redact_all(secrets, prompt)),
            "gen_ai.output.messages": json.dumps(redact_all(secrets, replies)),
        }
