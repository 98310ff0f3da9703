"""A verifier on disk and in memory: a critic whose value is the log-odds that an answer is right.

It reads what it was trained on and nothing else: the prompt as its model's template has it, then
the answer and its end. Text never becomes a control token, so an answer cannot end itself and
continue as another message.
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
from pettingllms.learners.files import CRITIC_FILE
from pettingllms.models import find_model
from pettingllms.types import Failed, Message, Reward, Scored

SETTINGS_FILE = "verifier.json"
ROLE = "answer"
MAX_LETTERS = 64
"""Of a token, on average: a text of more is not even tokenised."""
Question = tuple[Sequence[Message], str]
"""What was asked, and an answer."""


@dataclass(frozen=True, slots=True)
class Make:
    """What a verifier is made of."""

    model: str
    """Folder or hub name."""
    kind: Literal["lora", "full"] = "lora"
    rank: int = 16
    alpha: int = 32
    max_tokens: int = 2048
    every_token: bool = False

    def spec(
        self, learner: LearnerConfig, seed: int = 0, lr: float = 1e-4, device: str = "cpu"
    ) -> CriticSpec:
        """The critic that it is."""
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


class Reader:
    """From text to what a verifier reads."""

    def __init__(self, make: Make) -> None:
        self._renderer = ChatRenderer(find_model(make.model))
        self._make = make

    def read(
        self, messages: Sequence[Message], answer: str, right: bool | None = None
    ) -> JointAction | None:
        """Prompt and answer as ids, with a target if there is a label; None if they are longer
        than the verifier reads."""
        num_letters = sum(len(m.content) for m in messages) + len(answer)
        if num_letters > MAX_LETTERS * self._make.max_tokens:
            return None
        prompt = self._renderer.render([Message(m.speaker, m.content) for m in messages])
        reply = self._renderer.encode(answer)
        if len(prompt) + len(reply) > self._make.max_tokens:
            return None
        targets = np.full(len(reply) + 1, np.nan, dtype=np.float32)
        if right is not None:
            targets[1 if self._make.every_token else -1 :] = float(right)
        nothing = np.zeros(len(reply), dtype=np.float32)
        return JointAction((ROLE,), (Item(prompt, reply, nothing, 0.0, targets=targets),))


class Verifier:
    """Says how likely answers are right."""

    def __init__(self, make: Make, critic: Critic) -> None:
        self.make = make
        self._critic = critic
        self._reader = Reader(make)

    def score(self, questions: Sequence[Question]) -> list[Reward]:
        """For each answer the probability that it is right, or why there is none."""
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
        """One that cannot be read is no failure of those beside it. An answer that is too long
        scores nothing; a question that is too long has no score."""
        try:
            joint_action = self._reader.read(*question)
            if joint_action is None and self._reader.read(question[0], "") is not None:
                return Scored(0.0)
        except SamplerError as error:
            return Failed(str(error), "judge")
        return joint_action or Failed(f"longer than {self.make.max_tokens} tokens", "limit")


def _probability(log_odds: float) -> float:
    """Without overflow on either side."""
    if log_odds < 0:
        return math.exp(log_odds) / (1 + math.exp(log_odds))
    return 1 / (1 + math.exp(-log_odds))


def write_verifier(folder: Path, make: Make, weights: bytes) -> None:
    """Write a verifier as a folder: what it is made of, and what was trained."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CRITIC_FILE).write_bytes(weights)
    text = json.dumps(asdict(make), indent=1)
    (folder / SETTINGS_FILE).write_text(text + "\n", encoding="utf-8")


def load_verifier(folder: Path, device: str = "cpu") -> Verifier:
    """A verifier that `write_verifier` wrote, ready to score."""
    try:
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        make, weights = Make(**settings), (folder / CRITIC_FILE).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise ModelError(
            f"{folder} holds no verifier ({error}); `pettingllms verifier train` writes one"
        ) from None
    critic = Critic(make.spec(LearnerConfig(), device=device))
    critic.load({CRITIC_FILE: weights})
    return Verifier(make, critic)
