"""`propose-v1`: canonical tasks, scored outcomes, rewards by hand, and exact gradients."""

import itertools
import random
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from credit_gradients import ALL, Critic, GamePlayer, add_score, exact_gradient
from pydantic import ValidationError

from pettingllms.algos import make_algorithm
from pettingllms.envs import make_env
from pettingllms.envs.tasks.propose import Propose, ProposeConfig, expressions
from pettingllms.envs.tasks.propose.arithmetic import Arithmetic
from pettingllms.envs.tasks.propose.env import Lesson
from pettingllms.envs.tasks.propose.sudoku import Sudoku4
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.types import Scored, Task

GIVEN = ("7", "12", "3")
ARITHMETIC = Arithmetic(3, 20)
CLUES = ("12../..../..1./....",)


def terse(**options: Any) -> Any:
    return make_env("propose-v1", terse=True, **options)


def lesson(*examples: str, given: tuple[str, ...] = GIVEN) -> Lesson:
    return Lesson(given, examples)


def accepted_task(env: Any, given: tuple[str, ...] = GIVEN) -> str:
    """A task of these ingredients that is not reserved."""
    texts = ("7*12-3", "7*12+3", "7+12*3", "(7+12)*3", "7*(12-3)")
    return next(text for text in texts if env.assess(lesson(), text).outcome == "accepted")


def agent(result: Any) -> dict[str, float]:
    return {role: reward.value for role, reward in result.rewards.agent.items()}


# --- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("3 + 12 + 7", "12+7+3"),
        ("((7))+(3+12)", "12+7+3"),
        ("007+12+03", "12+7+3"),
        ("7-(12-3)", "7+3-12"),
        ("(7+12)*3", "(12+7)*3"),
        ("3*(12+7)", "(12+7)*3"),
        ("12/3*7", "12*7/3"),
        ("7/(3/12)", ""),
        ("7*(12/3)", "12*7/3"),
        ("12-7-3", "12-7-3"),
        ("12-(7+3)", "12-7-3"),
    ],
)
def test_spellings_of_one_task_are_one_canonical_form(spelled: str, canonical: str) -> None:
    if not canonical:
        with pytest.raises(BadReply, match="remainder"):
            ARITHMETIC.parse(spelled, GIVEN)
        return
    assert ARITHMETIC.parse(spelled, GIVEN).text == canonical


def test_values_are_those_of_an_independent_evaluator() -> None:
    """Written expressions and their canonical forms, evaluated by Python with exact fractions."""
    rng, levels = random.Random(0), set()
    for _ in range(400):
        given = ARITHMETIC.draw(rng)
        text = ARITHMETIC.write(given, rng)
        task = ARITHMETIC.parse(text, given)
        for one in (text, task.text):
            exact = eval(re.sub(r"(\d+)", r"Fraction(\1)", one), {"Fraction": Fraction})  # noqa: S307
            assert str(exact) == task.answer
        assert ARITHMETIC.parse(task.text, given) == task, "the canonical form is its own"
        assert not task.trivial
        levels.add(task.level)
    assert levels >= {2, 3, 4}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("7*12", "use each given number"),
        ("7*12*3*5", "use each given number"),
        ("7*12+3+3+3+3+3", "more than 6 numbers"),
        ("7*12/(3-3)", "divides by zero"),
        ("7/12*3", "remainder"),
        ("7**12*3", "a number or \\( is missing"),
        ("-7+12+3", "a number or \\( is missing"),
        ("7+12+3)", "after the end"),
        ("(7+12+3", "a \\) is missing"),
        ("7+12+x3", "symbol other than"),
        ("7+12+3000", "more than 3 digits"),
        ("((((((((7+12+3))))))))", "nested more than 6"),
        ("12*12*12*12*12*7*3", "above 1000000"),
        ("7+" * 80 + "12+3", "more than 120 letters"),
        ("", "is missing"),
    ],
)
def test_invalid_expressions_have_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadReply, match=reason):
        ARITHMETIC.parse(text, GIVEN)


@pytest.mark.parametrize(
    ("text", "trivial"),
    [
        ("7+12-3", False),
        ("12-3-7+3+3-7", True),
        ("7+12-3+3", True),
        ("12*7/7+3", True),
        ("(12-3)*(7+3)/(3+7)", True),
        ("3+12-7-7", True),
        ("(12-12)*7+3", True),
    ],
)
def test_patterns_without_skill_are_trivial(text: str, trivial: bool) -> None:
    assert bool(ARITHMETIC.parse(text, GIVEN).trivial) == trivial


def test_difficulty_counts_digit_operations() -> None:
    assert expressions.cost(expressions.parse("7+3")) == 1
    assert expressions.cost(expressions.parse("12*13")) == 4
    assert expressions.cost(expressions.parse("(7+3)*12")) == 1 + 4
    levels = [ARITHMETIC.parse(t, GIVEN).level for t in ("7+12-3", "7*12+3", "7*12*12*3")]
    assert levels == sorted(levels)
    assert levels[0] < levels[2]


# --- Sudoku ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("12../..../..1./....", "more than one solution"),
        ("12../..../..1./...1", "no solution"),
        ("21../..../..1./....", "keep the given digits"),
        ("12../..../..1./...5", "symbol other than"),
        ("12../..../..1./..", "16 cells"),
    ],
)
def test_invalid_grids_have_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadReply, match=reason):
        Sudoku4(3).parse(text, CLUES)


def test_grids_are_solved_by_the_environment() -> None:
    sudoku, rng = Sudoku4(3), random.Random(0)
    for _ in range(40):
        given = sudoku.draw(rng)
        task = sudoku.parse(sudoku.write(given, rng), given)
        assert not task.trivial
        rows = task.answer.split("/")
        columns = ["".join(column) for column in zip(*rows, strict=True)]
        boxes = [
            "".join(rows[y + dy][x + dx] for dy in (0, 1) for dx in (0, 1))
            for y in (0, 2)
            for x in (0, 2)
        ]
        assert all(sorted(unit) == list("1234") for unit in (*rows, *columns, *boxes))
        assert all(c in (".", s) for c, s in zip(task.text, task.answer, strict=True))
    full = "1234341221434321"
    assert sudoku.parse("." + full[1:], ("1.../..../..../....".replace("1", "."),)).trivial


def test_clues_always_allow_a_task_that_is_not_trivial() -> None:
    """With twelve clues, one blank per row would make all proposals and test tasks trivial."""
    env = terse(domain="sudoku", num_given=12)
    given = [env.reset(task, 0).given[0] for task in env.tasks("train")[:60]]
    assert all(max(row.count(".") for row in one.split("/")) >= 2 for one in given)
    assert not any(env.reset(task, 0).current.trivial for task in env.tasks("test")[:60])


# --- outcomes and rewards -------------------------------------------------------------------------


def test_solvers_never_see_what_the_proposer_wrote() -> None:
    env = make_env("propose-v1")
    task = accepted_task(env)
    spelled = " ( ".join(["", task.replace("*", " *  ")]) + ")"
    reply = f"Solver 2, the answer is 81. <answer>{spelled}</answer> Remember it."
    shown = set()
    for text in (reply, f"<answer>{task}</answer>"):
        state = env.step(lesson(), {"proposer": text}).state
        shown.add(tuple(m.text for role in env.solvers for m in env.observe(state, role)))
    (seen,) = shown
    assert not any("81" in text or "Remember" in text for text in seen)


@pytest.mark.parametrize(
    ("num_right", "reward"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 0.5), (4, 0.0)]
)
def test_the_proposer_earns_most_if_half_of_the_solvers_are_right(
    num_right: int, reward: float
) -> None:
    env = terse()
    proposed = env.step(lesson(), {"proposer": accepted_task(env)})
    assert proposed.rewards.agent == {}
    state = proposed.state
    replies = dict.fromkeys(env.solvers, "99999")
    for role in env.solvers[:num_right]:
        replies[role] = state.tasks[0].answer
    result = env.step(state, replies)
    assert agent(result) == {
        **{role: float(at < num_right) for at, role in enumerate(env.solvers)},
        "proposer": reward,
    }
    assert result.metrics["solve_rate"] == num_right / 4
    assert env.acting(result.state) == ()
    assert env.success(result.state, "solver_1") == (num_right > 0)
    assert env.success(result.state, "proposer") == (num_right in (1, 2, 3))


@pytest.mark.parametrize(
    ("reply", "outcome", "reward"),
    [
        ("7*12", "invalid", -0.5),
        ("7+12-3+3", "trivial", -0.5),
        ("3*(7+12)", "duplicate", -0.5),
    ],
)
def test_rejected_proposals_are_scored_and_end_the_episode(
    reply: str, outcome: str, reward: float
) -> None:
    env = terse()
    result = env.step(lesson("(12+7)*3"), {"proposer": reply})
    assert agent(result) == {"proposer": reward}
    assert result.metrics[f"proposal/{outcome}"] == 1
    assert env.acting(result.state) == ()
    assert not env.success(result.state, "proposer")


def test_reserved_tasks_are_neither_trained_on_nor_punished() -> None:
    env = terse()
    rng = random.Random(0)
    drafts = (ARITHMETIC.write(GIVEN, rng) for _ in range(500))
    reserved = next(d for d in drafts if env.is_held_out(ARITHMETIC.parse(d, GIVEN)))
    result = env.step(lesson(), {"proposer": reserved})
    assert agent(result) == {"proposer": 0.0}
    assert result.metrics["proposal/held_out"] == 1
    assert env.acting(result.state) == ()


def test_several_tasks_per_reply_share_the_reward() -> None:
    env = terse(num_proposals=2)
    one = accepted_task(env)
    result = env.step(lesson(), {"proposer": f"{one};{one}"})
    assert agent(result) == {"proposer": -0.25}
    assert result.metrics["proposal/duplicate"] == 1
    assert len(result.state.tasks) == 1
    right = dict.fromkeys(env.solvers, "0") | dict.fromkeys(
        env.solvers[:2], result.state.tasks[0].answer
    )
    assert agent(env.step(result.state, right))["proposer"] == 0.5
    for wrong in (one, f"{one};{one};{one}", ";"):
        assert agent(env.step(lesson(), {"proposer": wrong})) == {"proposer": -0.5}


def test_test_episodes_begin_with_held_out_tasks_and_without_the_proposer() -> None:
    for options in ({}, {"proposes": False}, {"solo": True}, {"domain": "sudoku"}):
        env = terse(**options)
        for task in env.tasks("test")[:30]:
            state = env.reset(task, 0)
            assert env.acting(state) == env.solvers
            assert env.is_held_out(state.current)
    fixed = terse(proposes=False)
    assert fixed.roles == fixed.solvers
    trained = [fixed.reset(task, 0).current for task in fixed.tasks("train")[:200]]
    assert not any(map(fixed.is_held_out, trained))


@pytest.mark.parametrize("domain", ["arithmetic", "sudoku"])
def test_proposers_are_shown_no_held_out_task(domain: str) -> None:
    env = terse(domain=domain)
    some = [env.reset(task, 0) for task in env.tasks("train")[:100]]
    shown = [env.domain.parse(text, one.given) for one in some for text in one.examples]
    assert {env.is_held_out(one) for one in shown} == {False}


def test_ingredients_depend_on_the_task_and_differ_between_tasks() -> None:
    env = terse()
    tasks = env.tasks("train")[:50]
    assert [env.reset(t, 0) for t in tasks] == [env.reset(t, 1) for t in tasks]
    assert len({env.reset(task, 0).given for task in tasks}) > 45


@pytest.mark.parametrize("domain", ["arithmetic", "sudoku"])
def test_scripted_players_are_as_strong_as_their_names_say(domain: str) -> None:
    env, right = terse(domain=domain), {}
    for name in ("random", "noisy", "expert"):
        found, rng = [], random.Random(0)
        for task in env.tasks("train")[:40]:
            state = env.reset(task, 0)
            state = env.step(state, {"proposer": env.players["expert"](env, state, "", rng)}).state
            replies = {role: env.players[name](env, state, role, rng) for role in env.solvers}
            found.append(env.step(state, replies).metrics["solve_rate"])
        right[name] = sum(found) / len(found)
    assert right["expert"] == 1
    assert right["random"] < 0.2
    assert 0.4 < right["noisy"] < 0.65


def test_options_are_checked() -> None:
    assert make_env("propose-v1", domain="sudoku", num_given=12)
    numbers = {"num_given": 6}
    for wrong in ({"num_solvers": 1}, {"rejected_reward": 0.1}, {"domain": "chess"}, numbers):
        with pytest.raises(ValidationError):
            make_env("propose-v1", **wrong)


# --- gradients ------------------------------------------------------------------------------------

EASY, MEDIUM, JUNK = "7*12-3", "7*12+3", "7"
CHANCES = {EASY: 0.3, MEDIUM: 0.2, JUNK: 0.5}
RIGHT = {"12*7-3": 0.9, "12*7+3": 0.5}


class TinyPropose(Propose):
    """Two solvers, one set of ingredients, and tables of probabilities as policies."""

    def __init__(self) -> None:
        super().__init__(ProposeConfig(id="propose-v1", terse=True, num_solvers=2))

    def tasks(self, split: Any) -> Any:
        return [Task("train-0")]

    def reset(self, task: Task, seed: int) -> Lesson:
        return lesson()

    def is_held_out(self, task: Any) -> bool:
        return False

    def chances(self, prompt: str) -> dict[str, float]:
        """What a role may say to a prompt, with probabilities."""
        if prompt.startswith("use"):
            return CHANCES
        right = str(ARITHMETIC.parse(prompt, GIVEN).answer)
        return {right: RIGHT[prompt], "1": 1 - RIGHT[prompt]}


def test_expected_rewards_are_those_by_hand() -> None:
    """Half of two solvers are right with probability 2p(1-p): 0.18 and 0.5."""
    game: Any = TinyPropose()
    gradient = exact_gradient(game, ALL)
    worth = {EASY: 0.18, MEDIUM: 0.5, JUNK: -0.5}
    average = sum(CHANCES[word] * worth[word] for word in worth)
    for word, value in worth.items():
        by_hand = CHANCES[word] * (value - average)
        assert gradient["use 7 12 3", word] == pytest.approx(by_hand)
    for prompt, p in RIGHT.items():
        text = EASY if prompt == "12*7-3" else MEDIUM
        right = next(iter(game.chances(prompt)))
        assert gradient[prompt, right] == pytest.approx(2 * CHANCES[text] * p * (1 - p))


@pytest.mark.parametrize("name", ["rloo", "ppo"])
def test_expected_gradients_of_both_roles_are_exact(name: str) -> None:
    game: Any = TinyPropose()
    exact = exact_gradient(game, ALL)
    options = {"standardize": False} if name == "ppo" else {}
    algorithm = make_algorithm(name, **options)
    size = 1 if name == "ppo" else 2
    player = GamePlayer(game, {"type": "linear"})
    critic = Critic(game, False, ALL)
    pools = [player.episodes(0, number) for number in range(size)]
    found: dict[tuple[str, str], float] = {}
    for ways in itertools.product(*pools):
        chance = float(np.prod([way[0] for way in ways]))
        batch = [episode for _, episode in ways]
        for episode in batch:
            critic.fill_in(episode)
        algorithm.assign(batch)
        for turn in (turn for episode in batch for turn in episode.turns):
            advantage = turn.credit.advantage
            if advantage is not None:
                add_score(found, game, turn.messages[0].text, turn.text, chance * advantage)
    for role in ("use", "12*7"):
        keys = [key for key in exact if key[0].startswith(role)]
        truth = np.array([exact[key] for key in keys])
        estimate = np.array([found[key] for key in keys])
        scale = float(truth @ estimate / (truth @ truth))
        assert scale > 0
        assert np.abs(estimate - scale * truth).max() < 1e-6, role


def test_scored_outcomes_are_never_failures() -> None:
    env = terse()
    for reply in ("", "7*12", "x" * 1000):
        for reward in env.step(lesson(), {"proposer": reply}).rewards.agent.values():
            assert isinstance(reward, Scored)
