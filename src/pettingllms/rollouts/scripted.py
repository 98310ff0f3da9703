"""A sampler and a renderer without a model: an environment's scripted player, in bytes."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from pettingllms.envs import Environment
from pettingllms.rollouts.player import Player
from pettingllms.types import Ids, Message, Sample, SampleRequest


class ByteRenderer:
    """Text as UTF-8 bytes: every id is a byte, and nothing needs a tokenizer."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Each message under its speaker, then the assistant's turn to speak."""
        text = "".join(f"<{m.speaker}>\n{_described(m)}\n" for m in messages) + "<assistant>\n"
        return text_ids(text)

    end = ""
    num_ids = 256

    def chat_text(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],  # noqa: ARG002 - there is no place for them
        opens: bool,
    ) -> str:
        """The same as text."""
        chat = "".join(f"<{m['role']}>\n{m['content']}\n" for m in messages)
        return chat + "<assistant>\n" * opens

    def text_ids(self, text: str) -> Ids:
        """The bytes of a text."""
        return text_ids(text)

    def prompt_ids(self, text: str) -> Ids:
        """The same: no byte is control."""
        return text_ids(text)

    def encode(self, text: str) -> Ids:
        """Ids of a reply that no policy has written."""
        return text_ids(text)

    def decode(self, ids: Ids) -> str:
        """The text of the bytes; a reply that was cut inside a character ends with U+FFFD."""
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def ends(self, ids: Ids, text: str) -> None:
        """None: a byte has no log-prob, so nobody looks at it alone."""


class ScriptedSampler:
    """Answers with one of the environment's scripted players. It has no log-probs to give.

    What it says is never cut: a limit is of tokens, these are bytes, and a player whose moves were
    cut to pieces would lose to anybody.
    """

    def __init__(self, env: Environment[Any, Any], player: str) -> None:
        self._env = env
        self._player = env.player(player)

    async def sample(self, request: SampleRequest) -> list[Sample]:
        """Let the player reply as often as asked, each time by other chance."""
        rng = random.Random(request.seed)
        replies = [
            self._player(self._env, request.state, request.role, rng)
            for _ in range(request.num_samples)
        ]
        return [Sample(text_ids(reply), None, 0, "stop") for reply in replies]


def scripted_player(
    env: Environment[Any, Any], player: str, policy: str = "", trained: bool = False
) -> Player:
    """The player of a scripted player, in a policy's name if it has one."""
    sampler = ScriptedSampler(env, player)
    return Player(policy or player, sampler, ByteRenderer(), trained, reads_state=True)


def _described(message: Message) -> str:
    """What a record can show of a message: scripts read the state, so an image is a mark."""
    return "\n".join([*(f"[image {one.digest[:12]}]" for one in message.images), message.text])


def text_ids(text: str) -> Ids:
    """The bytes of a text, as ids."""
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
