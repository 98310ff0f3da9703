"""Requests to a judge model: rate limits, retries, a cache and deadlines.

This is the boundary that turns errors of sampling into `Failed` verdicts, so that one error does
not affect other verdicts.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pettingllms.errors import ClusterError, describe
from pettingllms.judges.base import JudgeModel
from pettingllms.judges.rate_limits import Limits
from pettingllms.judges.verdicts import BadVerdict
from pettingllms.runtime.in_flight import service_timeout
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    Failed,
    Message,
    PromptRefused,
    PromptTooLong,
    Reward,
    Sample,
    SampleRequest,
    Scored,
    images_of,
)

CHARS_PER_TOKEN = 3
"""For a conservative estimate of prompt tokens before the server reports usage."""
WAIT_SECONDS = 0.25
"""Delay before the first retry; it doubles with each retry."""

Reader = Callable[[str], Scored]
ResultT = TypeVar("ResultT")


class Unreadable(Failed):
    """The model gave no verdict, and the submission may be the cause: it confused the model, is
    longer than its context, or its server refuses it."""

    __slots__ = ()


def no_verdict(failure: Failed) -> Failed:
    """The failure of a judge whose model failed: `Unreadable` if the prompt caused it."""
    kind = Unreadable if isinstance(failure, PromptTooLong | PromptRefused) else Failed
    return kind(failure.reason, "judge")


class JudgeRequests:
    """Sends requests to a judge model."""

    def __init__(
        self,
        judge_model: JudgeModel,
        limits: Limits,
        num_tries: int,
        seconds: float,
        max_tokens: int,
    ) -> None:
        self._judge_model = judge_model
        self._limits = limits
        self._num_tries = num_tries
        self._seconds = seconds
        self._max_tokens = max_tokens
        self.num_tokens = 0
        """Tokens used since the caller last reset this to 0."""

    async def ask(self, messages: Sequence[Message], read: Reader, seed: int) -> Reward:
        """The verdict in the model's reply; Failed with the last reason if every try fails."""
        last = Failed("", "judge")
        for number in range(self._num_tries):
            if number:
                await asyncio.sleep(WAIT_SECONDS * 2 ** (number - 1))
            reply = await self._reply(messages, derive_seed(seed, number))
            if isinstance(reply, str):
                try:
                    return read(reply.strip())
                except BadVerdict as bad:
                    last = Unreadable(str(bad), "judge")
            else:
                last = no_verdict(reply)
        return replace(last, reason=f"no verdict in {self._num_tries} tries: {last.reason}")

    async def choose(
        self, messages: Sequence[Message], replies: Sequence[str]
    ) -> list[float] | Failed:
        """Log-probs of the given replies; nothing is sampled."""
        assert self._judge_model.read is not None  # noqa: S101 - checked by LlmJudge
        async with self._limits.slot(0):
            return await self._within(self._judge_model.read(messages, replies))

    async def _reply(self, messages: Sequence[Message], seed: int) -> str | Failed:
        num_chars = sum(len(message.text) for message in messages)
        expected = num_chars // CHARS_PER_TOKEN + self._max_tokens
        async with self._limits.slot(expected):
            found = await self._sample(messages, seed)
            if isinstance(found, Failed):
                return found
            usage = found.usage
            used = num_chars // CHARS_PER_TOKEN + len(found.ids)
            used = used if usage is None else usage.prompt + usage.reply
            self._limits.settle(expected, used)
            self.num_tokens += used
        return self._judge_model.renderer.decode(found.ids)

    async def _sample(self, messages: Sequence[Message], seed: int) -> Sample | Failed:
        request = SampleRequest(
            policy=self._judge_model.policy,
            role="judge",
            prompt_ids=self._judge_model.renderer.render(messages),
            num_samples=1,
            max_tokens=self._max_tokens,
            seed=seed,
            task_id="",
            temperature=self._judge_model.temperature,
            truncation=self._judge_model.truncation,
            images=images_of(messages),
        )
        found = await self._within(self._judge_model.sampler.sample(request))
        return found if isinstance(found, Failed) else found[0]

    async def _within(self, work: Awaitable[ResultT]) -> ResultT | Failed:
        """The result of a call within its timeout; time in our own queue does not count."""
        try:
            async with service_timeout(self._seconds):
                return await work
        except TimeoutError:
            return Failed(f"no reply within {self._seconds:g} s", "judge")
        except ClusterError:
            raise  # no engine is left to answer
        except Exception as error:  # noqa: BLE001 - see the docstring
            return Failed(describe(error), "judge")


class Cache:
    """Caches verdicts but not failures, and merges concurrent equal requests."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._given: OrderedDict[str, Scored] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Reward]] = {}
        self.num_hits = 0

    async def verdict(self, key: str, make: Callable[[], Awaitable[Reward]]) -> Reward:
        """The cached verdict of a key, computed if missing."""
        if key in self._given:
            self.num_hits += 1
            self._given.move_to_end(key)
            return self._given[key]
        if key in self._pending:
            self.num_hits += 1
            return await asyncio.shield(self._pending[key])
        waiting = self._pending[key] = asyncio.get_running_loop().create_future()
        found: Reward = Failed("judging was canceled", "judge")
        try:
            found = await make()
        finally:
            del self._pending[key]
            waiting.set_result(found)
        if isinstance(found, Scored):
            self._given[key] = found
            while len(self._given) > self._size:
                self._given.popitem(last=False)
        return found


def key_of(*texts: str) -> str:
    """Cache key of the texts of a request."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()
