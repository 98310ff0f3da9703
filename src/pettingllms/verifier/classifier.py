"""A verifier on disk and in memory: a critic whose value is the log-odds of a correct answer.

Its input is the prompt in the model's chat template, then the answer and an end token, as in
training. Text never becomes a control token, so an answer cannot end itself and continue as another
message.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pettingllms.config import CriticConfig, LearnerConfig
from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import ModelError, SamplerError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.learners.batches import Item, JointAction
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.models import find_model
from pettingllms.policies.files import CRITIC_FILE
from pettingllms.types import Failed, Message, Reward, Scored

SETTINGS_FILE = "verifier.json"
ROLE = "answer"
MAX_CHARS_PER_TOKEN = 64
"""Texts with more characters per allowed token are rejected without tokenizing them."""
Question = tuple[Sequence[Message], str]
"""The prompt and an answer."""


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    """The model and settings of a verifier."""

    model: str
    """Folder or hub name."""
    kind: Literal["lora", "full"] = "lora"
    rank: int = 16
    alpha: int = 32
    max_tokens: int = 2048
    every_token: bool = False

    def critic(
        self, learner: LearnerConfig, seed: int = 0, lr: float = 1e-4, device: str = "cpu"
    ) -> CriticSpec:
        """The specification of the underlying critic."""
        adapter = LoraPolicy(model=self.model, rank=self.rank, alpha=self.alpha)
        return CriticSpec(
            model=find_model(self.model),
            critic=CriticConfig(kind="model", lr=lr),
            config=learner,
            seed=seed,
            device=device,
            adapter=adapter if self.kind == "lora" else None,
            loss="binary",
        )


class VerifierTokenizer:
    """Turns a prompt and an answer into token ids and targets."""

    def __init__(self, spec: VerifierSpec) -> None:
        self._renderer = ChatRenderer(find_model(spec.model))
        self._spec = spec

    def read(
        self, messages: Sequence[Message], answer: str, correct: bool | None = None
    ) -> JointAction | None:
        """Prompt and answer as ids, with targets if labeled; None if they exceed `max_tokens`."""
        num_chars = sum(len(m.content) for m in messages) + len(answer)
        if num_chars > MAX_CHARS_PER_TOKEN * self._spec.max_tokens:
            return None
        prompt = self._renderer.render([Message(m.speaker, m.content) for m in messages])
        reply = self._renderer.encode(answer)
        if len(prompt) + len(reply) > self._spec.max_tokens:
            return None
        targets = np.full(len(reply) + 1, np.nan, dtype=np.float32)
        if correct is not None:
            targets[1 if self._spec.every_token else -1 :] = float(correct)
        zeros = np.zeros(len(reply), dtype=np.float32)
        return JointAction((ROLE,), (Item(prompt, reply, zeros, 0.0, targets=targets),))


class Verifier:
    """Scores answers by the probability that they are correct."""

    def __init__(self, spec: VerifierSpec, critic: Critic) -> None:
        self.spec = spec
        self._critic = critic
        self._tokenizer = VerifierTokenizer(spec)

    def score(self, questions: Sequence[Question]) -> list[Reward]:
        """The probability that each answer is correct, or the reason for a failure."""
        read = [self._read(question) for question in questions]
        values = iter(
            self._critic.values(
                [joint_action for joint_action in read if isinstance(joint_action, JointAction)]
            )
        )
        found: list[Reward] = []
        for joint_action in read:
            if isinstance(joint_action, Scored | Failed):
                found.append(joint_action)
            else:
                row, _ = next(values)
                found.append(Scored(_probability(float(row[-1]))))
        return found

    def _read(self, question: Question) -> JointAction | Reward:
        """Tokenize one question; a problem affects only this question. An answer that is too long
        or that the tokenizer rejects scores 0; a prompt like that fails."""
        try:
            is_fine = self._tokenizer.read(question[0], "") is not None
        except SamplerError as error:
            return Failed(str(error), "judge")
        if not is_fine:
            return Failed(f"longer than {self.spec.max_tokens} tokens", "limit")
        try:
            return self._tokenizer.read(*question) or Scored(0.0)
        except SamplerError:
            return Scored(0.0)


def _probability(log_odds: float) -> float:
    """The logistic function without overflow."""
    if log_odds < 0:
        return math.exp(log_odds) / (1 + math.exp(log_odds))
    return 1 / (1 + math.exp(-log_odds))


def write_verifier(folder: Path, spec: VerifierSpec, weights: bytes) -> None:
    """Write a verifier's settings and trained weights to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CRITIC_FILE).write_bytes(weights)
    text = json.dumps(asdict(spec), indent=1)
    (folder / SETTINGS_FILE).write_text(text + "\n", encoding="utf-8")


def load_verifier(folder: Path, device: str = "cpu") -> Verifier:
    """Load a verifier that `write_verifier` wrote."""
    try:
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        spec, weights = VerifierSpec(**settings), (folder / CRITIC_FILE).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise ModelError(
            f"{folder} holds no verifier ({error}); `pettingllms verifier train` writes one"
        ) from None
    critic = Critic(spec.critic(LearnerConfig(), device=device))
    critic.load({CRITIC_FILE: weights})
    return Verifier(spec, critic)
