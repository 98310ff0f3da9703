"""Math with a tool and a reasoner: observations, rewards and endings."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="needs the extra `math`")

from pettingllms.envs import make_env
from pettingllms.envs.tasks.math import env as math_env
from pettingllms.envs.tasks.math import programs
from pettingllms.errors import DataError
from pettingllms.grading import Verdict
from pettingllms.types import Failed, Scored

PATIENCE = 30.0
"""For programs that end by themselves: this is not about how busy a machine is."""
SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def start(**options: Any) -> tuple[Any, Any]:
    env = make_env("math-v1", program_seconds=PATIENCE, **options)
    return env, env.reset(env.tasks("train")[0], 0)


def program(answer: object) -> str:
    return f"Let me see.\n```python\nprint({answer!r})\n```"


def shown(env: Any, state: Any, role: str) -> str:
    return "\n".join(message.content for message in env.observe(state, role))


def play(env: Any, player: str, number: int = 0) -> tuple[Any, list[Any]]:
    state, rng, results = env.reset(env.tasks("train")[number], 0), random.Random(number), []
    while roles := env.acting(state):
        results.append(env.step(state, {r: env.players[player](env, state, r, rng) for r in roles}))
        state = results[-1].state
    return state, results


@pytest.mark.parametrize("order", ["in_turn", "together"])
@pytest.mark.parametrize("solo", [False, True])
def test_a_team_that_knows_succeeds_and_one_that_errs_fails(order: str, solo: bool) -> None:
    env = make_env("math-v1", order=order, solo=solo, program_seconds=PATIENCE)
    role = env.roles[0]
    assert all(env.success(play(env, "solver", n)[0], role) for n in range(3))
    assert not any(env.success(play(env, "wrong", n)[0], role) for n in range(3))


def test_in_turn_the_reasoner_sees_what_the_program_of_this_round_printed() -> None:
    env, state = start()
    assert env.acting(state) == ("tool",)
    state = env.step(state, {"tool": program(4711)}).state
    assert env.acting(state) == ("reasoner",)
    assert "4711" in shown(env, state, "reasoner")


def test_together_both_speak_and_see_the_round_before() -> None:
    env, state = start(order="together")
    assert env.acting(state) == ("tool", "reasoner")
    state = env.step(state, {"tool": program(4711), "reasoner": "\\boxed{815}"}).state
    assert "4711" in shown(env, state, "reasoner")
    assert "815" in shown(env, state, "tool")


def test_it_ends_when_both_agree_and_else_after_the_last_round() -> None:
    env, state = start(max_rounds=3)
    state = env.step(state, {"tool": program(7)}).state
    agreed = env.step(state, {"reasoner": "So \\boxed{7}."}).state
    assert env.acting(agreed) == ()
    assert agreed.round == 1
    state, results = play(env, "random")
    assert state.over
    assert len(results) <= 6


def test_a_right_answer_earns_once_and_losing_it_costs_as_much() -> None:
    env, state = start(max_rounds=3)
    truth = state.problem.answer
    first = env.step(state, {"tool": program(-1)})
    assert first.rewards.process == {"tool": Scored(0.0)}
    second = env.step(first.state, {"reasoner": f"\\boxed{{{truth}}}"})
    assert second.rewards.process == {"reasoner": Scored(1.0)}
    third = env.step(second.state, {"tool": program(-2)})
    fourth = env.step(third.state, {"reasoner": f"Again \\boxed{{{truth}.0}}"})
    assert fourth.rewards.process == {"reasoner": Scored(0.0)}
    fifth = env.step(fourth.state, {"tool": program(-3)})
    last = env.step(fifth.state, {"reasoner": "\\boxed{-9}"})
    assert last.rewards.process == {"reasoner": Scored(-1.0)}
    assert last.rewards.agent == {"tool": Scored(0.0), "reasoner": Scored(0.0)}
    assert last.rewards.team == Scored(0.0)


def test_a_refused_reply_costs_and_leaves_the_answer_before_it() -> None:
    env, state = start()
    state = env.step(state, {"tool": program(1)}).state
    state = env.step(state, {"reasoner": "\\boxed{2}"}).state
    result = env.step(state, {"tool": "no program"})
    assert result.rewards.process == {"tool": Scored(-0.1)}
    assert result.metrics["illegal"] == 1
    assert "still: 1" in shown(env, result.state, "reasoner")


def test_reward_levels_follow_who_was_right() -> None:
    env, state = start(max_rounds=1)
    truth = state.problem.answer
    state = env.step(state, {"tool": program(int(truth))}).state
    rewards = env.step(state, {"reasoner": "\\boxed{-1}"}).rewards
    assert rewards.agent == {"tool": Scored(1.0), "reasoner": Scored(0.0)}
    assert rewards.team == Scored(0.0)


def test_without_a_verdict_no_role_gets_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    env, state = start(max_rounds=1)
    state = env.step(state, {"tool": program(1)}).state
    monkeypatch.setattr(math_env, "verdict_on", lambda *_: Verdict(failure="it hangs"))
    rewards = env.step(state, {"reasoner": "\\boxed{5}"}).rewards
    lost = Failed("no verdict on an answer: it hangs", "judge")
    assert rewards.process == {"reasoner": lost}
    assert rewards.agent["reasoner"] == lost
    assert rewards.team == lost


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("print(1/0)", "ended with ZeroDivisionError"),
        ("raise ValueError('<|im_start|>system')", "ended with ValueError"),
        ("while True: pass", "took too long"),
        ("x = 1", "printed nothing"),
        ("print('<|im_end|>')", "printed a last line that is no answer"),
        ("print('A' * 500)", "printed a last line that is no answer"),
        ("this is no program", "ended with SyntaxError"),
    ],
)
def test_a_program_that_gives_nothing_says_why_in_our_words(source: str, note: str) -> None:
    seconds = 1.0 if note == "took too long" else PATIENCE
    assert programs.run(source, seconds, 256) == programs.Printed(None, note)


def test_only_the_last_line_counts_and_the_truth_is_not_inside() -> None:
    assert programs.run("print('thinking')\nprint(6 * 7)", PATIENCE, 256).answer == "42"


def test_problems_come_from_a_file_and_are_graded_as_latex() -> None:
    env = make_env(
        "math-v1",
        data=f"math:{SAMPLES / 'math.json'}",
        test_share=0.5,
        max_rounds=1,
        program_seconds=PATIENCE,
    )
    tasks = [*env.tasks("train"), *env.tasks("test")]
    assert len(tasks) == 3
    task = next(task for task in tasks if "0.75" in task.data["question"])
    state = env.step(env.reset(task, 0), {"tool": program("0.75")}).state
    state = env.step(state, {"reasoner": "\\boxed{\\dfrac{6}{8}}"}).state
    assert env.success(state, "reasoner")


def test_a_test_file_that_meets_the_training_file_is_refused() -> None:
    file = f"gsm8k:{SAMPLES / 'gsm8k.jsonl'}"
    with pytest.raises(DataError, match="also training problems"):
        make_env("math-v1", data=file, test_data=file)


def test_a_file_is_taken_whole_unless_a_number_is_given(tmp_path: Path) -> None:
    rows = (json.dumps({"question": f"{n} and 1?", "answer": f"#### {n + 1}"}) for n in range(3000))
    (tmp_path / "many.jsonl").write_text("\n".join(rows))
    file = f"gsm8k:{tmp_path / 'many.jsonl'}"
    whole, cut = make_env("math-v1", data=file), make_env("math-v1", data=file, num_tasks=100)
    assert len(whole.tasks("train")) + len(whole.tasks("test")) == 3000
    assert [len(cut.tasks(split)) for split in ("train", "test")] == [100, 100]
    assert len(make_env("math-v1").tasks("train")) == 1024, "what is made has no end"
