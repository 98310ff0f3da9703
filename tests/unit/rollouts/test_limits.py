"""Replies and episodes that a limit cuts are outcomes: they are rewarded, compared and counted."""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from toys import AnsweringSampler, Relay, play_with, roll

from pettingllms.algos import make_algorithm
from pettingllms.algos.credit import role_reward
from pettingllms.config import EnvConfig, RewardConfig
from pettingllms.envs import Environment, StepResult, find_faults, make_env
from pettingllms.evaluation.match.tally import outcome_of
from pettingllms.evaluation.suites.scoring import score_episode
from pettingllms.inference.engines.base import marked_if_cut, too_long
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import (
    Episode,
    Failed,
    Rewards,
    SampleRequest,
    Scored,
    Task,
    episode_from_json,
    episode_to_json,
    user,
)

SAFE, WIN_CHANCE = 0.5, 0.13


@dataclass(frozen=True)
class Bet:
    said: tuple[str, ...] = ()


class Gamble(Environment[Bet, EnvConfig]):
    """Take the safe reward, or gamble: then the episode goes on until it is won, or cut."""

    id = "gamble-v1"
    players = {"random": lambda env, state, role, rng: rng.choice("sgwc")}
    late_rewards = True

    @property
    def roles(self):
        return ("a",)

    def tasks(self, split):
        return [Task(f"{split}-{at}", seed=at) for at in range(1000)]

    def reset(self, task, seed):
        return Bet()

    def acting(self, state):
        return () if state.said and state.said[-1] in ("s", "w") else ("a",)

    def observe(self, state, role):
        return [user(f"round {len(state.said)}")]

    def step(self, state, replies):
        after = replace(state, said=(*state.said, replies["a"]))
        reward = {"s": SAFE, "w": 1.0}.get(replies["a"])
        return StepResult(after, Rewards(agent={} if reward is None else {"a": Scored(reward)}))

    def success(self, state, role):
        return True


def half_gambles(request: SampleRequest, number: int) -> str:
    chance = random.Random(request.seed * 31 + number).random()
    if b"round 0" in bytes(request.prompt_ids.tolist()):
        return "g" if chance < 0.5 else "s"
    return "w" if chance < WIN_CHANCE else "c"


def push(algo: str, episodes: list[Episode]) -> float:
    """What the gradient adds to the log-odds of gambling: the mean of advantage times score."""
    make_algorithm(algo).assign(episodes)
    first = [t for e in episodes for t in e.turns if t.text in ("g", "s")]
    scores = [(0.5 if t.text == "g" else -0.5) * (t.credit.advantage or 0.0) for t in first]
    return float(np.mean(scores))


TRUE_PUSH = 0.25 * (1 - (1 - WIN_CHANCE) ** 2 - SAFE)
CASES = [
    ("rloo", {"num_samples": 4, "num_tasks": 120}),
    ("grpo", {"num_samples": 4, "num_tasks": 120}),
    ("at_grpo", {"num_samples": 4, "num_tasks": 120, "type": "tree", "continuation": "episode"}),
    (
        "counterfactual",
        {"num_samples": 1, "num_tasks": 120, "type": "replay", "replay": "resampled"},
    ),
]


@pytest.mark.parametrize(("algo", "options"), CASES, ids=[algo for algo, _ in CASES])
def test_a_bad_gamble_that_often_hits_a_limit_is_pushed_down(algo, options) -> None:
    episodes = roll(Gamble(), half_gambles, max_steps=3, **options)
    found = push(algo, episodes)
    assert found < 0, "with the default, the sign is that of the true gradient"
    if algo == "rloo":
        assert found == pytest.approx(TRUE_PUSH, abs=0.02)
    excluded = roll(Gamble(), half_gambles, max_steps=3, on_limit="exclude", **options)
    assert push(algo, excluded) > 0, "the known bias of excluding them"


def test_max_steps_rewards_all_roles_and_is_no_success() -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-3.0))
    (episode,) = roll(env, num_tasks=1, num_samples=1, max_steps=3)
    assert episode.failure is None
    assert episode.limit == "cut after 3 steps (rollout.max_steps)"
    assert episode.success == {"a": False, "b": False}
    assert episode.answers == {}
    assert episode.steps[-1].rewards == Rewards(agent={"a": Scored(-3.0), "b": Scored(-3.0)})
    only = RewardConfig(process=0.0)
    assert [role_reward(episode, role, only) for role in "ab"] == [Scored(-3.0)] * 2
    assert all(turn.credit.failure is None and turn.links.last == 3 for turn in episode.turns)
    back = episode_from_json(episode_to_json(episode))
    assert back.limit == episode.limit


class Team(Relay):
    limit_reward = -2.0
    limit_level = "team"


def test_a_team_shares_what_a_cut_earns() -> None:
    (episode,) = roll(Team(), num_tasks=1, num_samples=1, max_steps=3)
    assert episode.steps[-1].rewards == Rewards(team=Scored(-2.0))


class Model(AnsweringSampler):
    """Holds replies to what fits into a model, as engines do."""

    limit = 48

    async def sample(self, request):
        room = self.limit - len(request.prompt_ids)
        if room < 1:
            return [too_long(request, self.limit)] * request.num_samples
        fitting = replace(request, max_tokens=min(request.max_tokens, room))
        return marked_if_cut(request, await super().sample(fitting), self.limit)


def play_model(env: Any, answer: Any, **options: Any) -> list[Episode]:
    sampler = Model(answer)
    sampler.limit = options.pop("limit")
    players = {role: Player(f"p_{role}", sampler, ByteRenderer()) for role in env.roles}
    return play_with(env, players, **options)


def runs_over(request: SampleRequest, number: int) -> str:
    """b rambles."""
    return "9" * 500 if request.role == "b" and number % 2 == 0 else "4"


def test_a_reply_that_the_models_end_cuts_is_its_own_roles_outcome() -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-1.0))
    (episode,) = play_model(env, runs_over, num_tasks=1, num_samples=1, limit=90)
    assert episode.failure is None
    assert "inference.max_model_len = 90" in episode.limit
    a, b = episode.turns
    assert b.limit == episode.limit
    assert b.credit.failure is None
    assert b.finish == "length"
    assert len(b.response_ids) == len(b.logprobs) == 90 - len(b.prompt_ids)
    assert b.links.step == b.links.last == a.links.last == episode.last
    assert episode.steps[-1].rewards == Rewards(agent={"b": Scored(-1.0)})
    assert episode.success == {"a": False, "b": False}


def test_a_cut_sibling_is_compared_with_the_others_at_its_limit_reward() -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-20.0))
    (episode,) = play_model(
        env, runs_over, num_tasks=1, num_samples=4, type="tree", continuation="episode",
        limit=110, select="sampled",
    )  # fmt: skip
    assert episode.failure is None
    make_algorithm("at_grpo").assign([episode])
    first = [turn for turn in episode.turns if turn.role == "b" and turn.links.branch is not None][
        :4
    ]
    assert [turn.limit != "" for turn in first] == [True, False, True, False]
    assert all(turn.credit.failure is None for turn in first)
    assert [turn.credit.advantage < 0 for turn in first] == [True, False, True, False]


def test_a_tree_whose_every_sibling_is_cut_ends_there() -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-1.0))
    (episode,) = play_model(
        env, lambda request, number: "9" * 500, num_tasks=1, num_samples=2, type="tree",
        continuation="episode", limit=90,
    )  # fmt: skip
    assert episode.failure is None
    assert "max_model_len" in episode.limit
    assert episode.success == {"a": False, "b": False}
    assert role_reward(episode, "a", RewardConfig()) == Scored(-1.0)


def talks(request: SampleRequest, number: int) -> str:
    return "4444"


@pytest.mark.parametrize("type_", ["linear", "tree"])
def test_a_prompt_that_grew_too_long_is_an_outcome_of_all_roles(type_) -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-1.0))
    options = {"num_tasks": 1, "num_samples": 1 if type_ == "linear" else 2, "type": type_}
    (episode,) = play_model(env, talks, limit=60, **options)
    assert episode.failure is None
    assert "leaves no room for a reply" in episode.limit
    assert episode.steps[-1].rewards == Rewards(agent={"a": Scored(-1.0), "b": Scored(-1.0)})


@pytest.mark.parametrize("type_", ["linear", "tree"])
def test_a_first_prompt_that_is_too_long_is_nobodys_doing(type_) -> None:
    (episode,) = play_model(Relay(), talks, num_tasks=1, num_samples=1, limit=10, type=type_)
    assert episode.failure is not None
    assert episode.failure.owner == "limit"
    assert episode.limit == ""


def test_the_tokens_of_an_episode_are_a_limit_of_all_roles() -> None:
    env = Relay(EnvConfig(id="relay-v1", limit_reward=-1.0))
    both = {"a": Scored(-1.0), "b": Scored(-1.0)}
    (cut,) = roll(env, talks, num_tasks=1, num_samples=1, max_episode_tokens=6)
    assert cut.limit == "cut after 6 tokens (rollout.max_episode_tokens)"
    assert [turn.text for turn in cut.turns] == ["4444", "44"]
    assert cut.turns[1].links.step == cut.last
    assert cut.steps[-1].rewards == Rewards(agent=both)
    (between,) = roll(env, talks, num_tasks=1, num_samples=1, max_episode_tokens=8)
    assert [turn.links.step for turn in between.turns] == [0, 1]
    assert between.steps[-1].turns == ()
    assert between.steps[-1].rewards == Rewards(agent=both)


def test_a_reply_cut_at_max_reply_tokens_is_read_by_the_environment() -> None:
    (episode,) = roll(Relay(), talks, num_tasks=1, num_samples=1, max_reply_tokens=2)
    assert episode.limit == ""
    assert [turn.text for turn in episode.turns] == ["44"] * 4
    rewards = [step.rewards.process for step in episode.steps]
    assert rewards == [{role: Scored(44.0)} for role in "abab"]


def test_excluded_cuts_fail_as_before() -> None:
    (episode,) = roll(Relay(), num_tasks=1, num_samples=1, max_steps=3, on_limit="exclude")
    assert episode.failure == Failed("cut after 3 steps (rollout.max_steps)", "limit")
    assert episode.limit == ""
    assert episode.success == {}
    (cut,) = play_model(
        Relay(), runs_over, num_tasks=1, num_samples=1, limit=90, on_limit="exclude"
    )
    assert cut.failure is not None
    assert cut.failure.owner == "limit"
    assert all(turn.credit.failure is not None for turn in cut.turns)


def test_continuations_that_run_out_of_our_budget_are_still_excluded() -> None:
    (episode,) = roll(
        Relay(), num_tasks=1, num_samples=3, type="tree", continuation="episode",
        max_extra_tokens=3,
    )  # fmt: skip
    limits = [step.limit for step in episode.steps]
    assert not any(limits)
    failures = [turn.credit.failure for turn in episode.turns] + [episode.failure]
    assert any(f is not None and "max_extra_tokens" in f.reason for f in failures)


def test_a_bootstrapped_cut_has_no_reward() -> None:
    (episode,) = roll(Relay(), num_tasks=1, num_samples=1, max_steps=3, on_limit="bootstrap")
    assert episode.failure is None
    assert episode.is_bootstrapped
    assert episode.steps[-1].rewards == Rewards()
    assert episode.success == {"a": False, "b": False}


class Sore(Relay):
    """Ends with a loss that is worse than being cut."""

    late_rewards = True

    def step(self, state, replies):
        result = super().step(state, replies)
        if self.acting(result.state):
            return result
        lost = {role: Scored(-1.0) for role in self.roles}
        return replace(result, rewards=Rewards(result.rewards.process, lost))


def test_check_env_finds_a_cut_that_beats_losing() -> None:
    (fault,) = find_faults(Sore())
    assert fault.name == "limit-reward"
    assert "declare limit_reward = -1 or less" in fault.detail
    honest = Sore()
    honest.limit_reward = -1.0
    assert find_faults(honest) == []


def test_the_description_of_a_limit_names_the_reward_of_a_cut() -> None:
    game, team = make_env("tic_tac_toe-v1"), make_env("plan_path-v1", limit_reward=-0.5)
    assert "give reward -1 to each truncated role" in game.describe_limit("reward")
    assert "give reward -0.5 to the team" in team.describe_limit("reward")
    assert "excluded from training" in game.describe_limit("exclude")
    assert "the critic's value" in game.describe_limit("bootstrap")


def test_the_solo_form_has_the_limit_reward_of_the_team() -> None:
    solo = make_env("tic_tac_toe-v1", solo=True)
    assert solo.limit_rewards(solo.roles) == Rewards(agent={"solo": Scored(-1.0)})
    maze = make_env("plan_path-v1", solo=True, limit_reward=-2.0)
    assert maze.limit_rewards(maze.roles) == Rewards(team=Scored(-2.0))


def test_a_cut_episode_is_measured_as_cut_and_not_as_failed() -> None:
    (episode,) = roll(Relay(), num_tasks=1, num_samples=1, max_steps=3)
    score = score_episode(episode, "a", ("a", "b"), in_bytes=False)
    assert (score.success, score.failure, score.reason) == (False, "limit", episode.limit)
    assert outcome_of(episode, "a") == "unfinished"
