"""Turns whose tokens and texts stay where they were sampled, until something reads them.

A rollout worker returns the long parts of its turns as a few large arrays, which stay in shared
memory. The driver holds `StoredTurn`s: their lengths, keys and credit. Algorithms, metrics and
components need no more; a learner, a record or a judge that reads a turn gets its content.
"""

import hashlib
from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import numpy as np

from pettingllms.types.columns import Column
from pettingllms.types.messages import Image, Message
from pettingllms.types.turns import (
    Credit,
    Finish,
    Ids,
    LogProbs,
    TreeLinks,
    Turn,
    Usage,
    VersionRun,
)

DIGEST_BYTES = 16


class Tokens(NamedTuple):
    """The arrays of many turns. Prompts that are equal are kept once."""

    prompts: Column
    prompt_of: np.ndarray[Any, Any]
    """Index of each turn's prompt."""
    centralized_of: np.ndarray[Any, Any]
    """Index of each turn's centralized prompt among `prompts`; -1 if it has none."""
    replies: Column
    logprobs: Column
    ends: Column


class Text(NamedTuple):
    """The texts and images of one turn."""

    messages: tuple[Message, ...]
    text: str
    centralized_images: tuple[Image, ...]


class TokenRow(NamedTuple):
    """The arrays of one turn."""

    prompt_ids: Ids
    response_ids: Ids
    logprobs: LogProbs | None
    ends: Ids | None
    centralized_ids: Ids | None


class Content(Protocol):
    """The tokens and texts of many turns, loaded when one is read."""

    def tokens(self, row: int) -> TokenRow:
        """The arrays of a turn."""
        ...

    def text(self, row: int) -> Text:
        """The texts of a turn."""
        ...


class TurnSummary(NamedTuple):
    """What is known of a turn without its content."""

    num_response: int
    num_prompt: int
    has_logprobs: bool
    total_logprob: float
    repetition: float | None
    """None if it was not computed."""
    prompt: bytes
    """Digest of the prompt's ids and images."""
    reply: bytes
    """Digest of the text."""
    has_images: bool


class StoredTurn(Turn):
    """A turn whose content is loaded on access. Pickled, it stays a reference."""

    __slots__ = ("_content", "_row", "_summary")
    _content: Content
    _row: int
    _summary: TurnSummary

    def __init__(
        self,
        content: Content,
        row: int,
        summary: TurnSummary,
        role: str,
        policy: str,
        policy_version: int | None,
        finish: Finish,
        usage: Usage | None,
        guided: bool,
        limit: str,
        later_versions: tuple[VersionRun, ...],
        credit: Credit,
        links: TreeLinks,
    ) -> None:
        write = object.__setattr__  # turns are frozen
        write(self, "_content", content)
        write(self, "_row", row)
        write(self, "_summary", summary)
        write(self, "role", role)
        write(self, "policy", policy)
        write(self, "policy_version", policy_version)
        write(self, "finish", finish)
        write(self, "usage", usage)
        write(self, "guided", guided)
        write(self, "limit", limit)
        write(self, "later_versions", later_versions)
        write(self, "credit", credit)
        write(self, "links", links)

    def __reduce__(self) -> tuple[Any, ...]:
        place = (self._content, self._row, self._summary, self.role, self.policy)
        how = (self.policy_version, self.finish, self.usage, self.guided, self.limit)
        return StoredTurn, (*place, *how, self.later_versions, self.credit, self.links)

    def __repr__(self) -> str:
        return f"StoredTurn(role={self.role!r}, policy={self.policy!r}, row={self._row})"

    # Each property hides the field of `Turn`, which stays empty.
    @property
    def prompt_ids(self) -> Ids:
        return self._content.tokens(self._row).prompt_ids

    @property
    def response_ids(self) -> Ids:
        return self._content.tokens(self._row).response_ids

    @property
    def logprobs(self) -> LogProbs | None:
        return self._content.tokens(self._row).logprobs

    @property
    def ends(self) -> Ids | None:
        return self._content.tokens(self._row).ends

    @property
    def centralized_ids(self) -> Ids | None:
        return self._content.tokens(self._row).centralized_ids

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._content.text(self._row).messages

    @property
    def text(self) -> str:
        return self._content.text(self._row).text

    @property
    def centralized_images(self) -> tuple[Image, ...]:
        if not self._summary.has_images:
            return ()
        return self._content.text(self._row).centralized_images

    @property
    def images(self) -> tuple[Image, ...]:
        return super().images if self._summary.has_images else ()

    @property
    def has_logprobs(self) -> bool:
        return self._summary.has_logprobs

    @property
    def num_tokens(self) -> int:
        return self._summary.num_response if self.usage is None else self.usage.reply

    @property
    def num_prompt_tokens(self) -> int:
        return self._summary.num_prompt if self.usage is None else self.usage.prompt

    def total_logprob(self) -> float:
        return self._summary.total_logprob

    def repetition(self) -> float:
        known = self._summary.repetition
        return super().repetition() if known is None else known

    def prompt_key(self) -> Hashable:
        return self._summary.prompt

    def reply_key(self) -> Hashable:
        return self._summary.reply

    def loaded(self) -> Turn:
        """The same turn with its content, independent of where that was stored. Both share their
        credit and links."""
        arrays, texts = self._content.tokens(self._row), self._content.text(self._row)
        return Turn(
            role=self.role,
            policy=self.policy,
            messages=texts.messages,
            prompt_ids=arrays.prompt_ids,
            response_ids=arrays.response_ids,
            logprobs=arrays.logprobs,
            text=texts.text,
            policy_version=self.policy_version,
            finish=self.finish,
            ends=arrays.ends,
            usage=self.usage,
            guided=self.guided,
            limit=self.limit,
            later_versions=self.later_versions,
            centralized_ids=arrays.centralized_ids,
            centralized_images=texts.centralized_images,
            credit=self.credit,
            links=self.links,
        )


def summary_of(turn: Turn, measured: bool) -> TurnSummary:
    """The summary of a turn with its content. `measured`: with its repetition."""
    images = (*turn.images, *turn.centralized_images)
    return TurnSummary(
        num_response=len(turn.response_ids),
        num_prompt=len(turn.prompt_ids),
        has_logprobs=turn.logprobs is not None,
        total_logprob=turn.total_logprob(),
        repetition=turn.repetition() if measured else None,
        prompt=prompt_digest(turn),
        reply=digest(turn.text.strip().encode("utf-8", errors="surrogatepass")),
        has_images=bool(images),
    )


def prompt_digest(turn: Turn) -> bytes:
    """A digest that is equal for turns with equal `Turn.prompt_key`."""
    images = "".join(f" {image.digest}" for image in turn.images)
    return digest(np.ascontiguousarray(turn.prompt_ids).tobytes() + images.encode())


def digest(content: bytes) -> bytes:
    """A digest of bytes."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
