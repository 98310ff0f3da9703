"""Scripted players say what they say, whatever a model's replies are cut to."""

import asyncio

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import make_env
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode


def test_a_limit_of_tokens_does_not_cut_the_bytes_of_a_script() -> None:
    env = make_env("kuhn_poker-v1", terse=True)
    player = Player("nash", ScriptedSampler(env, "nash"), ByteRenderer(), False, reads_state=True)
    config = RolloutConfig(type="linear", num_samples=1, max_reply_tokens=1)
    episodes: list[Episode] = []
    worker = Worker(env, dict.fromkeys(env.roles, player), config, RewardConfig())
    asyncio.run(worker.run(env.tasks("train")[:20], 0, episodes.append))
    said = {turn.text for episode in episodes for turn in episode.turns}
    assert said == {"check", "bet", "call", "fold"}
    assert all(turn.finish == "stop" for episode in episodes for turn in episode.turns)
    assert not any(turn.credit.failure for episode in episodes for turn in episode.turns)
