"""Scripted players: a sampler and a renderer without a model, whose token ids are bytes."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from pettingllms.envs import Environment
from pettingllms.rollouts.player import Player
from pettingllms.types import Ids, Message, Sample, SampleRequest


class ByteRenderer:
    """Text as UTF-8 bytes: each id is a byte, so no tokenizer is needed."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Each message after its speaker, then the header of the assistant's reply."""
        text = "".join(f"<{m.speaker}>\n{_described(m)}\n" for m in messages) + "<assistant>\n"
        return text_ids(text)

    end = ""
    num_ids = 256

    def chat_text(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],  # noqa: ARG002 - not rendered
        opens: bool,
    ) -> str:
        """The rendered chat as text."""
        chat = "".join(f"<{m['role']}>\n{m['content']}\n" for m in messages)
        return chat + "<assistant>\n" * opens

    def text_ids(self, text: str) -> Ids:
        """The bytes of a text."""
        return text_ids(text)

    def prompt_ids(self, text: str) -> Ids:
        """The bytes of a prompt; no byte is a control token."""
        return text_ids(text)

    def encode(self, text: str) -> Ids:
        """Ids of a reply that no policy sampled."""
        return text_ids(text)

    def decode(self, ids: Ids) -> str:
        """The text of the bytes; a reply that was cut inside a character ends with U+FFFD."""
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def ends(self, ids: Ids, text: str) -> None:
        """None: bytes have no log-probs, so per-token offsets are not needed."""


class ScriptedSampler:
    """Samples from one of the environment's scripted players, without log-probs.

    Replies are never cut: limits count tokens and these are bytes. Truncated moves
    would make a useless opponent.
    """

    def __init__(self, env: Environment[Any, Any], player: str) -> None:
        self._env = env
        self._player = env.player(player)

    async def sample(self, request: SampleRequest) -> list[Sample]:
        """Let the player reply `num_samples` times, each with fresh randomness."""
        rng = random.Random(request.seed)
        replies = [
            self._player(self._env, request.state, request.role, rng)
            for _ in range(request.num_samples)
        ]
        return [Sample(text_ids(reply), None, 0, "stop") for reply in replies]


def scripted_player(
    env: Environment[Any, Any], player: str, policy: str = "", trained: bool = False
) -> Player:
    """A player that replies by script, under the name of a policy if one is given."""
    sampler = ScriptedSampler(env, player)
    return Player(policy or player, sampler, ByteRenderer(), trained, reads_state=True)


def _described(message: Message) -> str:
    """A message as text; images are placeholders, since scripted players read the state."""
    return "\n".join([*(f"[image {one.digest[:12]}]" for one in message.images), message.text])


def text_ids(text: str) -> Ids:
    """The bytes of a text, as ids."""
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
