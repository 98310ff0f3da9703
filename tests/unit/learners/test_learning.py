"""Critics teach: a team of two learns a small game, by the real learner and critics, in process.

Each role is shown a card and answers with two tokens; a token is right if its id is the card's
number modulo 4. The team alone is paid: for the share of right tokens, and more if all are right. A
role that answers by chance is right once in four.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.algos import make_algorithm
from pettingllms.algos.base import Algorithm
from pettingllms.config import CriticConfig, LearnerConfig, LossConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.learners.batches import items_of, joints_of
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner, LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.types import Episode, Rewards, Scored, Step, Task, Turn

ROLES = ("a", "b")
NUM_CARDS, NUM_TOKENS, NUM_PLAYS = 4, 2, 64
EPOCHS = 1
CARD, SEAT = 100, 200
"""Ids of the first card and of the first role's name."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return make_tiny(folder, texts=["card"], hidden_size=64, num_layers=1, vocab_size=260)


def sample(learner: Learner, prompts: np.ndarray, chance: torch.Generator) -> tuple:
    """Replies and their log-probs, one token after another."""
    ids, logprobs = torch.from_numpy(prompts).long(), []
    with torch.no_grad():
        for _ in range(NUM_TOKENS):
            logp = torch.log_softmax(learner._model.lm(input_ids=ids).logits[:, -1], -1)
            drawn = torch.multinomial(logp.exp(), 1, generator=chance)
            logprobs.append(logp.gather(1, drawn))
            ids = torch.cat([ids, drawn], 1)
    return ids[:, -NUM_TOKENS:].numpy().astype(np.int32), torch.cat(logprobs, 1).numpy()


def play(learner: Learner, step: int) -> list[Episode]:
    """A batch of plays in which both roles speak at the same time."""
    rng, chance = np.random.default_rng(step), torch.Generator().manual_seed(step)
    cards = rng.integers(0, NUM_CARDS, (NUM_PLAYS, 2))
    prompts = np.stack([SEAT + np.tile([0, 1], NUM_PLAYS), CARD + cards.flatten()], 1)
    replies, logprobs = sample(learner, prompts, chance)
    episodes = []
    for number in range(NUM_PLAYS):
        episode = Episode(f"t{number}/0", "cards-v1", Task(f"t{number}"), 0, last=0)
        for seat, role in enumerate(ROLES):
            at = 2 * number + seat
            central = np.array([*(CARD + cards[number]), SEAT + seat], dtype=np.int32)
            episode.turns.append(
                Turn(role, "p", (), prompts[at].astype(np.int32), replies[at], logprobs[at], "", 0,
                     step=0, last=0, central_ids=central)
            )  # fmt: skip
        episode.steps.append(Step(None, (0, 1), Rewards(team=Scored(pay(episode, cards[number])))))
        episodes.append(episode)
    return episodes


def pay(episode: Episode, cards: Sequence[int]) -> float:
    right = [
        (turn.response_ids % NUM_CARDS == card).mean()
        for turn, card in zip(episode.turns, cards, strict=True)
    ]
    worth = [(1 + card) / NUM_CARDS * share for card, share in zip(cards, right, strict=True)]
    return float(np.mean(worth)) + (min(right) == 1)


def value(algorithm: Algorithm, learner: Learner, critic: Critic | None, episodes) -> None:
    joints = algorithm.joints(episodes)
    central = "central" in algorithm.needs
    turns = [turn for joint in joints for turn in joint]
    read = joints_of(joints, central)
    if critic is None:
        items = [item for joint in read for item in joint.items]
        found = [(row, None) for row in learner.values("p", items)]
    else:
        found = critic.values(read)
    for turn, (turn.values, turn.mixed) in zip(turns, found, strict=True):
        pass


def train(model: Path, name: str, kind: str, num_steps: int, watch: Callable, **options) -> float:
    """The mean team reward of the last ten batches."""
    algorithm = make_algorithm(name, **options)
    settings = CriticConfig(kind=kind, lr=2e-3, mixer_lr=5e-3)
    config = LearnerConfig()
    learner = Learner(
        LearnerSpec(
            model, {"p": FullPolicy(model="m", lr=2e-3)}, config, LossConfig(), NUM_TOKENS, 1,
            critic=settings if kind == "head" else None,
        )
    )  # fmt: skip
    critic = None
    if kind == "model":
        critic = Critic(CriticSpec(model, settings, LearnerConfig(num_epochs=EPOCHS), 1, algorithm.mixer, ROLES))
    paid = []
    for step in range(num_steps):
        episodes = play(learner, step)
        value(algorithm, learner, critic, episodes)
        algorithm.assign(episodes)
        numbers = learner.train("p", items_of(episodes, "p"), step)
        assert numbers["gap"] < 1e-3
        if critic is not None:
            read = joints_of(algorithm.joints(episodes), "central" in algorithm.needs)
            numbers |= critic.train(read, step)
        paid.append(np.mean([episode.steps[0].rewards.team.value for episode in episodes]))
        watch(step, paid[-1], numbers)
    assert np.mean(paid[:3]) < 0.5
    return float(np.mean(paid[-10:]))


RUNS = [
    ("ppo", "head", {}),
    ("ppo", "head", {"level": "token"}),
    ("ppo", "model", {}),
    ("mappo", "model", {}),
    ("mappo", "model", {"level": "token"}),
    ("vdn", "model", {}),
    ("qmix", "model", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "options"), RUNS)
def test_a_team_learns(model: Path, name: str, kind: str, options: dict) -> None:
    seen = []

    def watch(step: int, paid: float, numbers: dict) -> None:
        seen.append(numbers["explained_variance"])

    assert train(model, name, kind, 150, watch, **options) > 1.0
    assert max(seen) > 0.2, "the critic never explained what was paid"
