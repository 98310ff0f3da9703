"""The protocol of planner and checker, in each environment that has it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from pettingllms.envs import check_env, make_env
from pettingllms.envs.toolkit.answers import answer_in, as_reply
from pettingllms.envs.toolkit.plan_check import LastReply
from pettingllms.types import Scored

STRONG = {"plan_path-v1": "bfs", "sokoban-v1": "astar", "sudoku-v1": "backtracking"}
each_env = pytest.mark.parametrize("name", list(STRONG))


def solution(env, state):
    reply = env.players[STRONG[env.id]](env, state, env.roles[0], random.Random(0))
    return env.read(state.puzzle, answer_in(reply))


def wrong_plans(env, state):
    """Two plans that the rules allow and that solve nothing."""
    rng, found = random.Random(1), set()
    while len(found) < 2:
        reply = env.players["random"](env, state, env.roles[0], rng)
        plan = env.read(state.puzzle, answer_in(reply))
        if env.score(state.puzzle, plan) < 1:
            found.add(plan)
    return sorted(found)


def start(name, index=0, **options):
    env = make_env(name, **options)
    return env, env.reset(env.tasks("train")[index], 0)


def step_with(env, state, answer):
    return env.step(state, {env.acting(state)[0]: as_reply(answer)})


def text(env, state, role):
    return env.observe(state, role)[-1].content


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plan_path-v1", {}),
        ("plan_path-v1", {"width": 3, "height": 9, "wall_share": 0.5, "max_rounds": 1}),
        ("plan_path-v1", {"solo": True}),
        ("sokoban-v1", {}),
        ("sokoban-v1", {"width": 8, "height": 7, "num_boxes": 3, "max_rounds": 5}),
        ("sokoban-v1", {"solo": True, "num_boxes": 2}),
        ("sudoku-v1", {}),
        ("sudoku-v1", {"size": 9, "max_rounds": 2}),
        ("sudoku-v1", {"solo": True, "num_blanks": 16}),
    ],
)
def test_contract(name, options):
    env = make_env(name, **options)
    check_env(env)
    check_env(env.solo())


@pytest.mark.parametrize(
    ("name", "options", "num_levels"),
    [
        ("plan_path-v1", {}, 200),
        ("plan_path-v1", {"width": 12, "height": 9, "wall_share": 0.4, "min_distance": 15}, 30),
        ("sokoban-v1", {}, 100),
        ("sokoban-v1", {"num_boxes": 2}, 100),
        ("sokoban-v1", {"num_boxes": 2, "max_moves": 20}, 20),
        ("sudoku-v1", {}, 100),
        ("sudoku-v1", {"size": 9}, 40),
    ],
)
@pytest.mark.parametrize("solo", [False, True])
def test_every_level_is_solved_by_its_strong_player(name, options, num_levels, solo):
    env = make_env(name, solo=solo, **options)
    player, rng = env.players[STRONG[name]], random.Random(0)
    for task in env.tasks("train")[: num_levels // 2] + env.tasks("test")[: num_levels // 2]:
        state = env.reset(task, 0)
        for gained in (1.0, 0.0):
            (role,) = env.acting(state)
            result = env.step(state, {role: player(env, state, role, rng)})
            assert result.rewards.process == {role: Scored(gained)}
            state = result.state
        assert env.acting(state) == ()
        assert result.rewards.team == Scored(1.0)
        assert all(env.success(state, role) for role in env.roles)


@each_env
def test_strong_checker_corrects_a_wrong_plan(name):
    env, state = start(name)
    wrong, _ = wrong_plans(env, state)
    state = step_with(env, state, wrong).state
    reply = env.players[STRONG[name]](env, state, "checker", random.Random(0))
    result = env.step(state, {"checker": reply})
    assert result.state.plan != wrong
    gained = 1.0 - env.score(state.puzzle, wrong)
    assert result.rewards.process == {"checker": Scored(gained)}


@each_env
@pytest.mark.parametrize("solo", [False, True])
def test_noisy_players_solve_less_than_three_puzzles_in_ten(name, solo):
    env = make_env(name, solo=solo)
    player, rng = env.players["noisy"], random.Random(0)
    solved = 0
    for task in env.tasks("train")[:300]:
        state = env.reset(task, 0)
        while env.acting(state):
            (role,) = env.acting(state)
            result = env.step(state, {role: player(env, state, role, rng)})
            assert not result.metrics["illegal"]
            state = result.state
        solved += env.success(state, env.roles[0])
    assert 0.15 < solved / 300 < 0.3


@each_env
def test_levels_come_from_the_tasks_seed_alone(name):
    env, twin = make_env(name), make_env(name)
    tasks = [*env.tasks("train")[:20], *env.tasks("test")[:20]]
    puzzles = [env.reset(task, 0).puzzle for task in tasks]
    assert puzzles == [twin.reset(task, 99).puzzle for task in tasks]
    assert puzzles == [env.solo().reset(task, 7).puzzle for task in tasks]
    assert len(set(puzzles)) == len(puzzles)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plan_path-v1", {"width": 3, "height": 3}),
        ("sokoban-v1", {"width": 5, "height": 5}),
        ("sudoku-v1", {"num_blanks": 1}),
    ],
)
def test_no_puzzle_is_in_both_splits(name, options):
    env = make_env(name, **options)
    train, test = (
        {env.reset(task, 0).puzzle for task in env.tasks(split)[:200]}
        for split in ("train", "test")
    )
    assert not train & test
    assert min(len(train), len(test)) > 20


@each_env
def test_each_role_sees_what_the_other_said(name):
    env, state = start(name)
    first, second = wrong_plans(env, state)
    assert "no plan yet" in text(env, state, "planner")
    state = step_with(env, state, first).state
    assert f"The planner proposed: {first}" in text(env, state, "checker")
    state = step_with(env, state, second).state
    assert env.acting(state) == ("planner",)
    seen = text(env, state, "planner")
    assert f"You proposed: {first}" in seen
    assert f"The checker changed the plan to: {second}" in seen
    assert "Round 2 of 3" in seen


@each_env
def test_refusals_are_told_to_both_and_change_no_plan(name):
    env, state = start(name)
    refused = step_with(env, state, "what?")
    assert refused.rewards.process == {"planner": Scored(-0.1)}
    assert refused.metrics == {"score": 0.0, "illegal": 1.0}
    reason = refused.state.replies[-1].refusal
    seen = text(env, refused.state, "checker")
    assert f"The planner's reply was refused: {reason}." in seen
    assert "no plan yet" in seen

    wrong, _ = wrong_plans(env, state)
    state = step_with(env, step_with(env, state, wrong).state, "what?").state
    seen = text(env, state, "planner")
    assert f"The checker's reply was refused: {reason}." in seen
    assert f"The plan is still: {wrong}" in seen
    state = step_with(env, state, "what?").state
    assert f"The plan is still: {wrong}" in text(env, state, "checker")
    assert f"Your reply was refused: {reason}." in text(env, state, "checker")


@each_env
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (["accept"], "the planner cannot accept"),
        (["what?", "accept"], "there is no plan to accept"),
    ],
)
def test_acceptance_out_of_place_is_refused(name, answers, reason):
    env, state = start(name)
    for answer in answers:
        result = step_with(env, state, answer)
        state = result.state
    assert reason in state.replies[-1].refusal
    assert result.rewards.process[state.replies[-1].role] == Scored(-0.1)
    assert env.acting(state)


@each_env
@pytest.mark.parametrize("how", ["accept", "Accept", "ACCEPT.", "repeat"])
def test_acceptance_ends_the_play(name, how):
    env, state = start(name)
    for plan, value in ((solution(env, state), 1.0), (wrong_plans(env, state)[0], 0.0)):
        proposed = step_with(env, state, plan)
        assert proposed.rewards.team is None
        result = step_with(env, proposed.state, plan if how == "repeat" else how)
        assert env.acting(result.state) == ()
        assert result.rewards.team == Scored(value)
        assert result.rewards.process == {"checker": Scored(0.0)}
        assert env.success(result.state, "planner") is env.success(result.state, "checker")
        assert env.success(result.state, "planner") is bool(value)


@each_env
def test_a_planner_who_repeats_the_checkers_plan_is_checked_again(name):
    env, state = start(name)
    first, second = wrong_plans(env, state)
    for answer in (first, second, second):
        state = step_with(env, state, answer).state
    assert env.acting(state) == ("checker",)
    assert f"The planner proposed: {second}" in text(env, state, "checker")


@each_env
def test_the_last_round_ends_with_the_plan_in_force(name):
    env, state = start(name, max_rounds=2)
    answers = [*wrong_plans(env, state), solution(env, state), "what?"]
    for answer in answers:
        assert env.acting(state)
        result = step_with(env, state, answer)
        state = result.state
    assert env.acting(state) == ()
    assert result.rewards.process == {"checker": Scored(-0.1)}
    assert result.rewards.team == Scored(1.0)
    assert env.success(state, "checker")


@each_env
def test_process_reward_of_both_roles_varies_with_the_reply(name):
    env, state = start(name)
    wrong, other = wrong_plans(env, state)
    proposed = step_with(env, state, wrong).state
    for role, at in (("planner", state), ("checker", proposed)):
        before = 0.0 if at.plan is None else env.score(at.puzzle, at.plan)
        earned = [
            step_with(env, at, answer).rewards.process[role].value
            for answer in (solution(env, state), other, "what?")
        ]
        assert earned[0] == 1.0 - before
        assert -before <= earned[1] < earned[0]
        assert earned[2] == -0.1


@each_env
def test_process_rewards_add_up_to_the_last_score_for_any_number_of_replies(name):
    env, state = start(name, max_rounds=3)
    wrong, other = wrong_plans(env, state)
    right = solution(env, state)
    for answers in ([right, "accept"], [wrong, other, right, other, wrong, right]):
        at, earned = state, 0.0
        for answer in answers:
            result = step_with(env, at, answer)
            earned += sum(reward.value for reward in result.rewards.process.values())
            at = result.state
        assert at.over
        assert earned == pytest.approx(1.0)


@each_env
def test_solo_plays_on_until_it_keeps_its_plan(name):
    env, state = start(name, solo=True)
    assert env.roles == ("solver",)
    first, second = wrong_plans(env, state)
    assert "there is no plan to accept" in step_with(env, state, "accept").state.replies[-1].refusal
    state = step_with(env, state, first).state
    assert f"You proposed: {first}" in text(env, state, "solver")
    for last in ("accept", first):
        assert env.acting(step_with(env, state, last).state) == ()
    state = step_with(env, state, second).state
    assert env.acting(step_with(env, state, first).state) == (), "the third round is the last"


@each_env
def test_both_ways_to_solo_give_the_same_environment(name):
    by_config, by_call = make_env(name, solo=True), make_env(name).solo()
    assert type(by_config) is type(by_call)
    assert by_config.config == by_call.config
    assert by_config.solo().roles == ("solver",)


@each_env
def test_observations_show_no_solution_that_no_role_gave(name):
    env = make_env(name)
    for task in env.tasks("train")[:50]:
        state = env.reset(task, 0)
        solved = solution(env, state)
        plans = [plan for plan in wrong_plans(env, state) if solved not in plan]
        for answer in ["what?", *plans]:
            after = step_with(env, state, answer).state
            for role in env.roles:
                for seen in (state, after):
                    assert solved not in text(env, seen, role)
                    assert solved.replace("/", "") not in "".join(text(env, seen, role).split())


@each_env
def test_observations_do_not_tell_whether_a_plan_is_right(name):
    env, state = start(name)
    right, (wrong, _) = solution(env, state), wrong_plans(env, state)
    for role in env.roles:
        views = [
            [
                m.content.replace(plan, "PLAN")
                for m in env.observe(step_with(env, state, plan).state, role)
            ]
            for plan in (right, wrong)
        ]
        assert views[0] == views[1]


@each_env
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_text_is_a_reply(name, data):
    env, state = start(name, solo=data.draw(st.booleans()))
    answers = st.text(max_size=40) | st.text("UDLR ,/1234\n", max_size=80) | st.just("accept")
    replies = st.text(max_size=60) | answers.map(as_reply)
    while acting := env.acting(state):
        reply = data.draw(replies)
        state = env.step(state, {acting[0]: reply}).state
        for role in env.roles:
            env.observe(state, role)
            Text.from_markup(env.draw(state, role))
    for role in env.roles:
        assert isinstance(env.success(state, role), bool)


@each_env
def test_drawing_and_hint_are_for_a_person(name):
    env, state = start(name)
    assert "accept" not in env.hint(state, "checker")
    wrong, _ = wrong_plans(env, state)
    refused = replace(state, replies=(LastReply("planner", refusal="[/] is no [red]plan"),))
    assert "[/] is no [red]plan" in Text.from_markup(env.draw(refused, "checker")).plain
    state = step_with(env, state, wrong).state
    assert "┌" in Text.from_markup(env.draw(state, "planner")).plain
    assert "accept" in env.hint(state, "checker")
    assert "accept" not in env.hint(state, "planner")
    assert "solved" not in env.draw(state, "checker")
    while env.acting(state):
        state = step_with(env, state, solution(env, state)).state
    assert env.draw(state, "checker").endswith("[green]solved[/]")
