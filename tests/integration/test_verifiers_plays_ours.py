"""Our environments under verifiers' own `vf-eval`: rewards equal those of local play."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from verifiers_cases import Chat, key_of, needs_verifiers, play_here, reward_of, vf_eval

from pettingllms.algos.credit import role_reward
from pettingllms.config import RewardConfig
from pettingllms.envs import Environment, make_env
from pettingllms.exchange.play import CoPlayers
from pettingllms.inference.http import JsonRenderer
from pettingllms.seeds import derive_seed
from pettingllms.types import Scored

pytestmark = needs_verifiers
NUM_TASKS = 4
ENVIRONMENTS = (
    "tic_tac_toe-v1", "kuhn_poker-v1", "iterated_dilemma-v1", "negotiation-v1", "sokoban-v1",
    "leduc_poker-v1", "sudoku-v1", "visual_relay-v1",
)  # fmt: skip


class Policy:
    """Replies by the prompt alone, as scripted players did when they first saw it."""

    def __init__(self, env: Environment[Any, Any]) -> None:
        self._replies: dict[str, str] = {}
        rng, renderer = random.Random(7), JsonRenderer(supports_images=True)
        names = list(env.players)
        for task in env.tasks("test")[:NUM_TASKS]:
            state = env.reset(task, derive_seed("env", 0, task.id))
            for _ in range(200):
                said = {}
                for role in env.acting(state):
                    seen = renderer.render(env.observe(state, role))
                    key = key_of(json.loads(bytes(seen.tolist())))
                    reply = env.player(rng.choice(names))(env, state, role, rng)
                    said[role] = self._replies.setdefault(key, reply)
                if not said:
                    break
                state = env.step(state, said).state

    def __call__(self, chat: Chat) -> str:
        return self._replies[key_of(chat)]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_all_roles_of_one_model_get_the_rewards_of_local_play(name: str, tmp_path: Path) -> None:
    env = make_env(name)
    policy, tasks = Policy(env), env.tasks("test")[:NUM_TASKS]
    episodes = play_here(env, tasks, policy)
    found = vf_eval(
        tmp_path, "pettingllms-verifiers", policy, "--env.taskset.env", name,
        "--select.limit", str(NUM_TASKS),
    )  # fmt: skip
    assert len(found) == NUM_TASKS
    for episode, theirs in zip(episodes, found, strict=True):
        assert theirs["ok"], theirs["errors"]
        assert theirs["task"]["data"]["task_id"] == episode.task.id
        by_role = {trace["info"]["role"]: trace for trace in theirs["traces"]}
        assert set(by_role) == {turn.role for turn in episode.turns}
        for role, trace in by_role.items():
            expected = role_reward(episode, role, RewardConfig())
            assert isinstance(expected, Scored)
            assert reward_of(trace) == pytest.approx(expected.value, abs=1e-12)
            assert trace["metrics"]["success"] == float(episode.success[role])
            said = [turn.text for turn in episode.turns if turn.role == role]
            sampled = [n["message"]["content"] for n in trace["nodes"] if n.get("sampled")]
            assert sampled == said
    rewards = {reward_of(trace) for theirs in found for trace in theirs["traces"]}
    assert len(rewards) > 1, "the rewards do not vary"


def test_scripted_co_player_plays_the_other_role(tmp_path: Path) -> None:
    env = make_env("tic_tac_toe-v1")
    policy = first_free_cell
    players = CoPlayers.for_role(env, "player_o", "random")
    found = vf_eval(
        tmp_path, "pettingllms-verifiers", policy, "--env.taskset.env", "tic_tac_toe-v1",
        "--env.role", "player_o", "--env.player", "random", "--select.limit", "6",
    )  # fmt: skip
    for task, theirs in zip(env.tasks("test"), found, strict=False):
        (trace,) = theirs["traces"]
        assert trace["info"]["role"] == "player_o"
        seed, total, at = derive_seed("env", 0, task.id), 0.0, 0
        state = env.reset(task, seed)
        while roles := env.acting(state):
            (role,) = roles
            if role == "player_o":
                seen = env.observe(state, role)
                reply = policy([{"role": m.speaker, "content": m.text} for m in seen])
            else:
                reply = players.reply(env, state, role, derive_seed("co", seed, at, role))
            result = env.step(state, {role: reply})
            rewards = result.rewards
            for given in (
                rewards.process.get("player_o"),
                rewards.agent.get("player_o"),
                rewards.team,
            ):
                total += given.value if isinstance(given, Scored) else 0.0
            state, at = result.state, at + 1
        assert reward_of(trace) == pytest.approx(total)
    assert len({reward_of(one["traces"][0]) for one in found}) > 1


def first_free_cell(chat: Chat) -> str:
    """The lowest number on a board of tic-tac-toe."""
    board = str(chat[-1]["content"]).partition("Your move")[0]
    return f"<answer>{min(filter(str.isdigit, board))}</answer>"
