import math
import random

import numpy as np
import pytest
from plays import overwrite, turn

from pettingllms.runs.metrics import diversity
from pettingllms.types import Turn
from pettingllms.types.turns import repetition


def asked(prompt: int, text: str) -> Turn:
    found = turn("a")
    overwrite(found, prompt_ids=np.array([prompt], dtype=np.int32))
    overwrite(found, text=text)
    return found


def replies(turns: list[Turn]) -> float:
    return diversity(turns)["distinct_replies"]


def test_one_reply_to_everything_is_one() -> None:
    found = diversity([asked(prompt, "5" + " " * (prompt % 2)) for prompt in range(50)])
    assert found["distinct_replies"] == pytest.approx(1.0)
    assert found["distinct_prompts"] == 50


def test_few_moves_in_use_count_as_many_as_they_are_however_many_prompts_there_were() -> None:
    for num_prompts in (20, 2000):
        turns = [asked(prompt, "bet" if prompt % 2 else "pass") for prompt in range(num_prompts)]
        assert replies(turns) == pytest.approx(2.0)
    assert replies([asked(n, str(n)) for n in range(30)]) == pytest.approx(30.0)


def test_a_move_that_is_rare_still_counts() -> None:
    turns = [asked(n, "bet" if n % 10 == 0 else "pass") for n in range(1000)]
    assert replies(turns) == pytest.approx(math.exp(-0.1 * math.log(0.1) - 0.9 * math.log(0.9)))


def test_a_prompt_that_is_asked_often_counts_once() -> None:
    """As the opening position does, or a decision with many siblings."""
    turns = [asked(0, "5")] * 96 + [asked(1, "1"), asked(2, "2"), asked(3, "3")]
    assert replies(turns) == pytest.approx(4.0)


def test_what_no_policy_wrote_is_not_counted() -> None:
    silent = asked(1, "other")
    overwrite(silent, policy_version=None)
    assert replies([asked(0, "5"), silent]) == pytest.approx(1.0)
    assert diversity([silent]) == {}


def test_a_loop_is_repetition_and_plain_text_is_not() -> None:
    rng = random.Random(0)
    text = np.array([rng.randrange(400) for _ in range(200)], dtype=np.int32)
    loop = np.array([7, 8, 9] * 60, dtype=np.int32)
    assert repetition(text) < 0.05
    assert repetition(loop) > 0.95
    assert repetition(loop[:31]) == 0.0, "a short path to the right is no loop"
    assert repetition(np.concatenate([text, loop])) == pytest.approx(0.46, abs=0.03)
