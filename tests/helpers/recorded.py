"""Episodes as a run records them, without an engine: rollouts of scripted players, with token ids,
log-probs of both sides and, where asked for, replies as long as those of models."""

import asyncio
import itertools
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from plays import overwrite

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RunConfig, load_config
from pettingllms.envs import make_env_for
from pettingllms.training.collect import scripted_worker
from pettingllms.types import Episode, Ids, Turn

ROOT = Path(__file__).parents[2]
PIECE = re.compile(r" ?\w{1,7}|\s+|[^\w\s]")
VOCABULARY = 49_152


def recorded(
    config_name: str, *overrides: str, player: str = "random", num_words: int = 0
) -> tuple[RunConfig, list[Episode]]:
    """The episodes of a config's first step; replies get `num_words` words of the docs."""
    config = load_config(ROOT / "configs" / config_name, overrides)
    env = make_env_for(config.env)
    tasks = list(itertools.islice(env.tasks("train"), config.rollout.num_tasks))
    worker = scripted_worker(config, env, {}, config.rollout, player)
    episodes: list[Episode] = []
    asyncio.run(worker.run(tasks, config.seed, episodes.append))
    make_algorithm_for(config).assign(episodes)
    rng = np.random.default_rng(0)
    for episode in episodes:
        if num_words:
            _lengthen(episode, num_words, rng)
        for turn in episode.turns:
            _add_tokens(turn, rng)
    return config, episodes


def _lengthen(episode: Episode, num_words: int, rng: np.random.Generator) -> None:
    """Append text to every reply, and to the messages that quote it."""
    words = (ROOT / "docs/concepts/glossary.md").read_text(encoding="utf-8").split(" ")
    longer: dict[str, str] = {}
    for turn in episode.turns:
        for old, new in longer.items():
            quoted = tuple(replace(m, content=m.content.replace(old, new)) for m in turn.messages)
            overwrite(turn, messages=quoted)
        if len(turn.text) > 3 and turn.text not in longer:
            longer[turn.text] = f"{turn.text} {' '.join(rng.choice(words, num_words))}"
        overwrite(turn, text=longer.get(turn.text, turn.text))


def _add_tokens(turn: Turn, rng: np.random.Generator) -> None:
    """Ids as of a tokenizer of whole words, and log-probs whose lower bits are noise."""
    pieces = [*PIECE.findall(turn.text), "<end>"]
    lengths = [len(piece) for piece in pieces[:-1]]
    logprobs = -rng.exponential(0.7, len(pieces)).astype(np.float32)
    noise = rng.normal(0, 3e-6, len(pieces)).astype(np.float32)
    prompt = "".join(f"<{m.speaker}>{m.text}" for m in turn.messages)
    overwrite(turn, prompt_ids=_ids(PIECE.findall(prompt)), response_ids=_ids(pieces))
    overwrite(turn, logprobs=logprobs, ends=np.cumsum([*lengths, 0]).astype(np.int32), usage=None)
    turn.credit.learner_logprobs = logprobs + noise


def _ids(pieces: Sequence[str]) -> Ids:
    return np.array([zlib.crc32(piece.encode()) % VOCABULARY for piece in pieces], np.int32)
