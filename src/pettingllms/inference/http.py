"""Policies on an OpenAI-compatible server: a remote vLLM or SGLang, or an API.

Such a policy is never trained, so only its text is needed: prompts and replies are stored as bytes.
A prompt refers to an image by its digest; the image is inserted when the prompt is sent.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import NoAnswerError, RequestRefusedError, SamplerError
from pettingllms.rollouts.scripted import text_ids
from pettingllms.runtime.http_client import JsonClient
from pettingllms.types import (
    Failed,
    Ids,
    Image,
    Message,
    PromptRefused,
    Sample,
    SampleRequest,
    Usage,
)
from pettingllms.types.turns import Finish
from pettingllms.vision.images import text_only


class JsonRenderer:
    """Messages as the bytes of their JSON, which the sampler sends unchanged."""

    def __init__(self, supports_images: bool = False) -> None:
        self._supports_images = supports_images

    def render(self, messages: Sequence[Message]) -> Ids:
        """The chat in the format of the API."""
        chat = [{"role": m.speaker, "content": self._content(m)} for m in messages]
        return text_ids(json.dumps(chat))

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        if not (self._supports_images and message.images):
            return text_only(message)
        images = [_image_part(image.digest) for image in message.images]
        return [*images, {"type": "text", "text": message.text}]

    def decode(self, ids: Ids) -> str:
        """The text of the bytes."""
        return bytes(ids.tolist()).decode("utf-8", errors="replace")

    def ends(self, ids: Ids, text: str) -> None:
        """None: bytes have no log-probs."""


class HttpSampler:
    """Samples replies from a server; retries while it is busy or restarting."""

    def __init__(self, policy: ApiPolicy, num_tries: int = 6) -> None:
        self._model = policy.model
        self._template_kwargs = policy.chat_template_kwargs
        url, whose = policy.url.rstrip("/") + "/chat/completions", f"policy at {policy.url}"
        self._client = JsonClient(url, policy.key, whose, policy.max_concurrent, num_tries)

    async def sample(self, request: SampleRequest) -> list[Sample | Failed]:
        """One call per reply, because servers treat `n` differently."""
        replies = (self._ask(request, number) for number in range(request.num_samples))
        return list(await asyncio.gather(*replies))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, request: SampleRequest, number: int) -> Sample | Failed:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": _with_images(
                json.loads(bytes(request.prompt_ids.tolist())), request.images
            ),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": (request.seed + number) % 2**31,
        }
        if request.truncation.top_p < 1:
            body["top_p"] = request.truncation.top_p
        if request.truncation.top_k:  # no part of OpenAI's API, but of vLLM's and SGLang's
            body["top_k"] = request.truncation.top_k
        if self._template_kwargs:
            body["chat_template_kwargs"] = self._template_kwargs
        if request.guide is not None:
            body["response_format"] = _response_format(json.loads(request.guide))
        try:
            answer = await self._client.post(body)
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            finish: Finish = "length" if choice["finish_reason"] == "length" else "stop"
            written = text_ids(text)
            if choice["finish_reason"] == "content_filter":
                return PromptRefused(
                    f"{self._client.url} cut the reply with its content filter", "sampler"
                )
        except RequestRefusedError as error:
            return PromptRefused(str(error), "sampler")
        except NoAnswerError as error:
            raise SamplerError(str(error)) from error
        except (LookupError, TypeError, AttributeError) as error:
            return Failed(f"{self._client.url} returned no chat completion: {error!r}", "sampler")
        return Sample(written, None, 0, finish, _usage(answer))


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The API's response format of a JSON schema; `{}` is any object."""
    if not schema:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def _image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _with_images(chat: list[dict[str, Any]], images: Sequence[Image]) -> list[dict[str, Any]]:
    """The chat with images in place of their digests."""
    data = {i.digest: f"data:image/png;base64,{b64encode(i.data).decode()}" for i in images}

    def filled(part: dict[str, Any]) -> dict[str, Any]:
        return _image_part(data[part["image_url"]["url"]]) if "image_url" in part else part

    for message in chat:
        if isinstance(message["content"], list):
            message["content"] = [filled(part) for part in message["content"]]
    return chat


def _usage(answer: Any) -> Usage | None:
    """The server's token counts, if it returns any."""
    counted = answer.get("usage")
    if not isinstance(counted, dict):
        return None
    prompt, reply = counted.get("prompt_tokens"), counted.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(reply, int) or min(prompt, reply) < 0:
        return None
    return Usage(prompt, reply)
