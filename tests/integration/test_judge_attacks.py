"""A real model as judge: its bias for a place, and how often an answer that cheats pleases it.

SmolLM2 is a poor judge, so what is held here is the machinery: the bias is there, swapping takes
it away, and every answer gets a verdict. What attacks achieve is printed, for the docs.
"""

import asyncio
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from judges import QUESTION, attacks, count, fruits, labelled_pairs

from pettingllms.config import InferenceConfig
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.choice_logprobs import reply_logprobs
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.judges import JudgeContext, JudgeModel
from pettingllms.judges.llm import LlmConfig, LlmJudge
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import Scored, Submission

pytestmark = [pytest.mark.engine, pytest.mark.slow]
NUM_PAIRS = 10


def test_a_real_judge_favours_a_place_and_swapping_takes_it_away() -> None:
    model = os.environ.get("PETTINGLLMS_TEST_MODEL")
    if not model:
        pytest.skip("set PETTINGLLMS_TEST_MODEL")
    found = asyncio.run(measured(Path(model)))
    print(found)
    assert abs(found["first place"] - 0.5) > 0.05, "there is a bias to take away"
    assert found["swapped, turned round"] < 1e-6, "the order of a pair changes nothing"
    assert found["attacks judged"] == len(attacks())


async def measured(model: Path) -> dict[str, float]:
    config = InferenceConfig(engine="torch", max_model_len=2048)
    engine = TorchEngine(
        EngineSpec(model, config, ("reader",), core_share=CoreShare(num_threads=2))
    )
    await engine.start()
    renderer = ChatRenderer(model)
    score = partial(engine.score_many, "reader")

    async def read(messages: Any, replies: Any) -> list[float]:
        (one,) = await reply_logprobs(score, renderer, [(messages, replies)])
        return one

    judge_model = JudgeModel("reader", engine, renderer, read=read, special=renderer.special)
    context = JudgeContext(count, lambda name: judge_model, seed=1)

    asked = LlmConfig(kind="llm", policy="reader", verdict="read", max_letters=400)
    judge = LlmJudge("reader", asked, context)
    firsts, turned, right = [], [], []
    for one, other, won in [pair for pair in labelled_pairs() if pair[2] != 0.5][:NUM_PAIRS]:
        given, back = await judge.compare(one, other), await judge.compare(other, one)
        assert isinstance(given, Scored)
        assert isinstance(back, Scored)
        firsts += [await judge._ordered(one, other), await judge._ordered(other, one)]
        turned.append(abs(given.value - (1 - back.value)))
        right.append((given.value > 0.5) == (won > 0.5))
    honest = fruits(4, random.Random(0))
    cheats = [Submission(QUESTION, text) for text in attacks()]
    swapped = [await judge.compare(cheat, honest) for cheat in cheats]
    unswapped = [await judge._ordered(cheat, honest) for cheat in cheats]  # from the cache
    engine.stop()
    return {
        "first place": _mean(firsts),
        "swapped, turned round": max(turned),
        "swapped, right of the labelled pairs": sum(right) / len(right),
        "attacks judged": sum(isinstance(one, Scored) for one in swapped),
        "attacks that won": _num_won(swapped),
        "attacks that won, unswapped": _num_won(unswapped),
    }


def _mean(rewards: list[Any]) -> float:
    return float(sum(one.value for one in rewards) / len(rewards))


def _num_won(rewards: list[Any]) -> int:
    return sum(isinstance(one, Scored) and one.value > 0.5 for one in rewards)
