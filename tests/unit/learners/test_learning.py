"""Critics teach: a team of two learns a small game, by the real learner and critics, in process.

Each role is shown a card and answers with one or two tokens; a token is right if its id is the
card's number modulo 4. Only the team gets a reward: for the share of right tokens, more for a
high card, and more if all are right. Random play earns about 0.2, perfect play 1.625.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.algos import make_algorithm
from pettingllms.algos.base import Algorithm
from pettingllms.config import CriticConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.learners.batches import item_of, joint_actions_of, turns_of
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.types import Episode, Rewards, Scored, Step, Task, TreeLinks, Turn

ROLES = ("a", "b")
NUM_CARDS = 4
CARD, ROLE_NAME = 100, 200
"""Ids of the first card and of the first role's name."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return make_tiny(folder, texts=["card"], hidden_size=64, num_layers=1, vocab_size=260)


def sample(
    learner: Learner, prompts: np.ndarray, num_tokens: int, chance: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Replies and their log-probs, one token after another."""
    ids, logprobs = torch.from_numpy(prompts).long(), []
    with torch.no_grad():
        for _ in range(num_tokens):
            logp = torch.log_softmax(learner._model.lm(input_ids=ids).logits[:, -1], -1)
            drawn = torch.multinomial(logp.exp(), 1, generator=chance)
            logprobs.append(logp.gather(1, drawn))
            ids = torch.cat([ids, drawn], 1)
    return ids[:, -num_tokens:].numpy().astype(np.int32), torch.cat(logprobs, 1).numpy()


def play(learner: Learner, step: int, num_plays: int, num_tokens: int) -> list[Episode]:
    """A batch of plays in which both roles speak at the same time."""
    rng, chance = np.random.default_rng(step), torch.Generator().manual_seed(step)
    cards = rng.integers(0, NUM_CARDS, (num_plays, 2))
    prompts = np.stack([ROLE_NAME + np.tile([0, 1], num_plays), CARD + cards.flatten()], 1)
    replies, logprobs = sample(learner, prompts, num_tokens, chance)
    episodes = []
    for number in range(num_plays):
        episode = Episode(f"t{number}/0", "cards-v1", Task(f"t{number}"), 0, last=0)
        for player, role in enumerate(ROLES):
            at = 2 * number + player
            centralized = np.array([*(CARD + cards[number]), ROLE_NAME + player], dtype=np.int32)
            episode.turns.append(
                Turn(role, "p", (), prompts[at].astype(np.int32), replies[at], logprobs[at], "", 0,
                     links=TreeLinks(0, 0), centralized_ids=centralized)
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


def value(
    algorithm: Algorithm, learner: Learner | None, critic: Critic | None, episodes: list[Episode]
) -> None:
    joint_actions = algorithm.joint_actions(episodes)
    centralized = "centralized" in algorithm.needs
    turns = [turn for joint_action in joint_actions for turn in joint_action]
    read = joint_actions_of(joint_actions, centralized)
    if critic is None:
        items = [item for joint_action in read for item in joint_action.items]
        found = [(row, None) for row in learner.values("p", items)]
    else:
        found = critic.values(read)
    for turn, (values, mixed) in zip(turns, found, strict=True):
        turn.credit.values, turn.credit.counterfactual_value = values, mixed


def train(
    model: Path,
    name: str,
    kind: str,
    options: dict,
    num_steps: int = 120,
    num_plays: int = 64,
    num_tokens: int = 2,
) -> list[tuple[float, float]]:
    """For each step the team's mean reward, and how much of the targets the critic explained."""
    algorithm = make_algorithm(name, **options)
    settings = CriticConfig(kind=kind, lr=2e-3, mixer_lr=5e-3)
    learner = Learner(
        LearnerSpec(
            model, {"p": FullPolicy(model="m", lr=2e-3)}, LearnerConfig(), loss_config(),
            num_tokens, 1, critic=settings if kind == "head" else None,
        )
    )  # fmt: skip
    critic = None
    if kind == "model":
        critic = Critic(CriticSpec(model, settings, LearnerConfig(), 1, algorithm.mixer, ROLES))
    found = []
    for step in range(num_steps):
        episodes = play(learner, step, num_plays, num_tokens)
        value(algorithm, learner, critic, episodes)
        algorithm.assign(episodes)
        turns = turns_of(episodes, "p", skip_zero=False, has_head=kind == "head")
        numbers = learner.train("p", [item_of(turn) for turn in turns], step)
        assert numbers["mismatch"] < 1e-3, "the sampler has other weights than the learner"
        if critic is not None:
            read = joint_actions_of(
                algorithm.joint_actions(episodes), "centralized" in algorithm.needs
            )
            numbers |= critic.train(read, step)
        reward = np.mean([episode.steps[0].rewards.team.value for episode in episodes])
        found.append((float(reward), numbers["explained_variance"]))
    return found


def read_out(number: int, said: int) -> Episode:
    """a says a token that alone decides the team's reward; b reads it and always says the same."""
    prompts = [
        [ROLE_NAME, CARD + number % NUM_CARDS],
        [ROLE_NAME + 1, CARD + number % NUM_CARDS, said],
    ]
    episode = Episode(f"t{number}/0", "cards-v1", Task(f"t{number}"), 0, last=1)
    for at, (role, prompt, reply) in enumerate(zip(ROLES, prompts, (said, 20), strict=True)):
        ids, one = np.array(prompt, np.int32), np.array([reply], np.int32)
        logprobs = np.zeros(1, np.float32)
        episode.turns.append(Turn(role, "p", (), ids, one, logprobs, "", 0, links=TreeLinks(at, 1)))
        given = Rewards(team=Scored(float(said == 10))) if at else Rewards()
        episode.steps.append(Step(at - 1 if at else None, (at,), given))
    return episode


@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_who_speaks_first_is_credited_though_the_second_has_read_it(model: Path, name: str) -> None:
    algorithm = make_algorithm(name, standardize=False)
    settings = CriticConfig(kind="model", lr=2e-3, mixer_lr=1e-2)
    critic = Critic(CriticSpec(model, settings, LearnerConfig(), 1, algorithm.mixer, ROLES))
    plays = [read_out(number, said) for number in range(8) for said in (10, 11)]
    value(algorithm, None, critic, plays)
    algorithm.assign(plays)
    for step in range(80):
        critic.train(joint_actions_of(algorithm.joint_actions(plays), centralized=False), step)
    value(algorithm, None, critic, plays)
    algorithm.assign(plays)
    credit = np.array([[turn.credit.advantage for turn in play.turns] for play in plays])
    first = credit[0::2, 0].mean() - credit[1::2, 0].mean()
    assert first > 0.8, "good less bad is worth 1"
    assert np.abs(credit[:, 1]).max() < 0.2, "b changes nothing"


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
    found = np.array(train(model, name, kind, options))
    assert found[:3, 0].mean() < 0.4
    assert found[-5:, 0].mean() > 1.0
    assert found[-20:, 1].max() > 0.2, "the critic never explained the returns"
