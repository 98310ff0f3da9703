"""A trained verifier as a judge: it returns the probability that an answer is correct.

It runs in a separate process, so training cannot change its weights: one that the run starts for a
folder, or a server that `pettingllms verifier serve` started.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.config import OneJudgeConfig
from pettingllms.errors import ConfigError, NoAnswerError
from pettingllms.judges.base import Judge, JudgeContext
from pettingllms.judges.local_verifier import LocalVerifier, folder_problem
from pettingllms.runtime.http_client import JsonClient
from pettingllms.runtime.in_flight import service_timeout
from pettingllms.types import Failed, Message, Reward, Scored, Submission, user

PLAIN_ANSWER = "0"
"""An answer that every verifier can score."""
CONNECT_SECONDS = 5.0
"""Time that a server has to answer before training starts."""


class VerifierClient:
    """Sends answers to a server started by `pettingllms verifier serve`."""

    def __init__(
        self,
        url: str,
        key: str,
        seconds: float = 60.0,
        num_tries: int = 6,
        max_concurrent: int = 32,
    ) -> None:
        """`key` names the environment variable that holds the API key. `seconds` is the timeout of
        one score including retries; time in the local queue does not count."""
        endpoint = url.rstrip("/") + "/score"
        self._client = JsonClient(endpoint, key, f"verifier at {url}", max_concurrent, num_tries)
        self._seconds = seconds

    async def score(self, messages: Sequence[Message], answer: str) -> Reward:
        """The probability that an answer is correct."""
        chat = [{"role": m.speaker, "content": m.content} for m in messages]
        try:
            async with service_timeout(self._seconds):
                return self._read(await self._client.post({"messages": chat, "answer": answer}))
        except NoAnswerError as error:
            return Failed(str(error), "judge")
        except TimeoutError:
            reason = f"{self._client.url} returned no score within {self._seconds:g} s"
            return Failed(reason, "judge")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _read(self, response: Any) -> Reward:
        score = response.get("score") if isinstance(response, dict) else None
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            words = self._client.redact(repr(response))
            return Failed(f"{self._client.url} returned no probability: {words}", "judge")
        return Scored(float(score))


class VerifierConfig(OneJudgeConfig):
    """Options of a trained verifier: at a server (`url`), or from its folder (`folder`)."""

    url: str = ""
    """Base URL of the verifier server, such as http://127.0.0.1:8100."""
    folder: str = ""
    """Folder of `pettingllms verifier train`. The run then starts a process for it, without a
    server or a key."""
    key: str = Field(default="VERIFIER_KEY", min_length=1)
    """Name of the environment variable that holds the key of the server."""
    seconds: float = Field(default=60.0, gt=0)
    """Timeout of one score, including retries."""
    max_concurrent: int = Field(default=32, ge=1)
    """Concurrent requests to the server."""

    @property
    def needs_model(self) -> bool:
        return True

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.url) == bool(self.folder):
            raise ValueError("set url, or folder, and not both")
        return self

    def unused_keys(self) -> set[str]:
        """Keys of a server."""
        return {"key", "max_concurrent"} if self.folder else set()

    def start_problem(self) -> str:
        if self.folder:
            return folder_problem(Path(self.folder))
        if not os.environ.get(self.key, "").strip():
            return (
                f"key: the environment variable {self.key} is not set; export {self.key}=$(cat "
                "RUN/key), with the key of `pettingllms verifier serve`"
            )
        return server_problem(self.url, self.key)


class VerifierJudge(Judge):
    """Scores with a trained verifier; comparisons follow from the scores.

    An answer must not gain by making the verifier fail. If the verifier scores a plain answer to
    the same question and twice fails on this one, the answer scores 0.
    """

    Config = VerifierConfig
    config: VerifierConfig

    def __init__(self, name: str, config: VerifierConfig, context: JudgeContext) -> None:
        super().__init__(name, config, context)
        self._client: LocalVerifier | VerifierClient
        if config.folder:
            self._client = LocalVerifier(Path(config.folder), config.seconds)
        else:
            self._client = VerifierClient(
                config.url, config.key, config.seconds, max_concurrent=config.max_concurrent
            )

    async def score(self, submission: Submission) -> Reward:
        verdict = await self._score(submission, submission.answer)
        if isinstance(verdict, Scored):
            return verdict
        if isinstance(await self._score(submission, PLAIN_ANSWER), Failed):
            return verdict
        again = await self._score(submission, submission.answer)
        if isinstance(again, Scored):
            return again
        self.note("num_confused", 1)
        return Scored(0.0)

    async def close(self) -> None:
        await self._client.close()

    async def _score(self, submission: Submission, answer: str) -> Reward:
        """Lone surrogates, which no tokenizer accepts, are replaced."""
        texts = [text.encode(errors="replace").decode() for text in (submission.question, answer)]
        return await self._client.score([user(texts[0])], texts[1])


def server_problem(url: str, key: str) -> str:
    """Why a verifier server would score nothing now; empty if it is ready."""
    import httpx

    try:
        client = JsonClient(url, key, "url")
    except ConfigError as error:
        return f"key: {error.problems[0]}; correct it"
    try:
        with httpx.Client(trust_env=not client.is_local, timeout=CONNECT_SECONDS) as http:
            answer = http.get(url.rstrip("/") + "/health", headers=client.headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return (
            f"url: no verifier answers at {url} ({error}); start it with `pettingllms verifier "
            "serve`, or correct the address"
        )
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return f"key: the verifier at {url} rejects the key in {key}; export that of its RUN/key"
    if answer.status_code != httpx.codes.OK:
        return (
            f"url: {url} is no verifier (HTTP {answer.status_code} from /health); give the address "
            "that `pettingllms verifier serve` prints"
        )
    return ""
