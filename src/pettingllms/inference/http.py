"""Policies behind an OpenAI-compatible server: vLLM or SGLang elsewhere, or an API.

Such a policy never learns, so its text is all that is needed: prompts and replies are kept as
bytes. An image stands in a prompt by its digest, and is put there when the prompt is sent.
"""

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import ConfigError, SamplerError
from pettingllms.images import readable
from pettingllms.inference.scripted import text_ids
from pettingllms.types import Failed, Ids, Image, Message, Sample, SampleRequest, Usage
from pettingllms.types.episodes import Finish

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("localhost", "127.0.0.1", "::1")
AGAIN = (408, 409, 429, 500, 502, 503, 504)
"""Answers after which it is worth asking again."""
FIRST_WAIT, MAX_WAIT = 0.5, 30.0
"""Seconds before the second try, then twice as many each time; and the most that a server gets."""


class JsonRenderer:
    """Messages as the bytes of their JSON, which the sampler sends as they are."""

    def __init__(self, sees: bool = False) -> None:
        self._sees = sees

    def render(self, messages: Sequence[Message]) -> Ids:
        """The chat as a server reads it."""
        chat = [{"role": m.speaker, "content": self._content(m)} for m in messages]
        return text_ids(json.dumps(chat))

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        if not (self._sees and message.images):
            return readable(message)
        images = [_image_part(image.digest) for image in message.images]
        return [*images, {"type": "text", "text": message.text}]

    def decode(self, ids: Ids) -> str:
        """The text of the bytes."""
        return bytes(ids.tolist()).decode("utf-8", errors="replace")

    def ends(self, ids: Ids, text: str) -> None:
        """None: a byte has no log-prob, so nobody looks at it alone."""


class HttpSampler:
    """Asks a server for replies; one that is busy or restarting is asked again."""

    def __init__(self, policy: ApiPolicy, max_concurrent: int = 64, num_tries: int = 5) -> None:
        self._policy = policy
        self._url = policy.url.rstrip("/") + "/chat/completions"
        self._num_tries = num_tries
        self._free = asyncio.Semaphore(max_concurrent)
        self._client: httpx.AsyncClient | None = None
        self._key = os.environ.get(policy.key, "").strip() if policy.key else ""
        if policy.key and not self._key:
            raise ConfigError(f"policy at {policy.url}", [f"${policy.key} is not set"])
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(
                f"policy at {policy.url}", [f"${policy.key} has signs that no header may hold"]
            )
        parts = urlsplit(policy.url)
        if self._key and parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise ConfigError(
                f"policy at {policy.url}",
                [f"${policy.key} would be sent unencrypted; use https, or unset the variable"],
            )

    @property
    def headers(self) -> dict[str, str]:
        """What is sent with every request; it may hold the key, so it is never shown."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    async def sample(self, request: SampleRequest) -> list[Sample | Failed]:
        """One call for each reply, since servers differ in how they treat `n`."""
        replies = (self._ask(request, number) for number in range(request.num_samples))
        return list(await asyncio.gather(*replies))

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _ask(self, request: SampleRequest, number: int) -> Sample | Failed:
        body: dict[str, Any] = {
            "model": self._policy.model,
            "messages": _shown(json.loads(bytes(request.prompt_ids.tolist())), request.images),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": (request.seed + number) % 2**31,
        }
        if request.guide is not None:
            form = {"name": "reply", "schema": json.loads(request.guide)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        async with self._free:
            answer = await self._post(body)
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            finish: Finish = "length" if choice["finish_reason"] == "length" else "stop"
            written = text_ids(text)
        except (LookupError, TypeError, AttributeError) as error:
            return Failed(f"{self._url} gave no chat completion: {error!r}", "sampler")
        return Sample(written, None, 0, finish, _usage(answer))

    async def _post(self, body: dict[str, Any]) -> Any:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(timeout=None, headers=self.headers)  # noqa: S113 - the
            # rollout's own deadline ends a request that takes too long
        problem, wait = "", 0.0
        for number in range(self._num_tries):
            await asyncio.sleep(wait)
            wait = FIRST_WAIT * 2**number
            try:
                answer = await self._client.post(self._url, json=body)
                if answer.status_code == httpx.codes.OK:
                    return answer.json()
                problem = f"HTTP {answer.status_code}: {answer.text}"
                if answer.status_code not in AGAIN:
                    break
                wait = max(wait, _asked_to_wait(answer.headers.get("Retry-After", "")))
            except (httpx.TransportError, ValueError) as error:
                problem = repr(error)  # ValueError: what came was no JSON
        raise SamplerError(f"{self._url} did not answer: {self._without_key(problem)[:200]}")

    def _without_key(self, text: str) -> str:
        """A server, or an error, may say what it was sent."""
        return text.replace(self._key, "[key]") if self._key else text


def _image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _shown(chat: list[dict[str, Any]], images: Sequence[Image]) -> list[dict[str, Any]]:
    """The chat with the images themselves where it has their digests."""
    data = {i.digest: f"data:image/png;base64,{b64encode(i.data).decode()}" for i in images}

    def filled(part: dict[str, Any]) -> dict[str, Any]:
        return _image_part(data[part["image_url"]["url"]]) if "image_url" in part else part

    for message in chat:
        if isinstance(message["content"], list):
            message["content"] = [filled(part) for part in message["content"]]
    return chat


def _asked_to_wait(header: str) -> float:
    """Seconds that a server asks to be left alone for, within reason."""
    whole = header.isascii() and header.isdigit() and len(header) < 6
    return min(MAX_WAIT, float(header)) if whole else 0.0


def _usage(answer: Any) -> Usage | None:
    """Tokens as the server counts them, if it does."""
    counted = answer.get("usage")
    if not isinstance(counted, dict):
        return None
    prompt, reply = counted.get("prompt_tokens"), counted.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(reply, int) or min(prompt, reply) < 0:
        return None
    return Usage(prompt, reply)
