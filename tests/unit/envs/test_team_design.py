"""Team design: observations, rewards, and which structure is best."""

import itertools
import json
import random
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.tasks.team_design.expected import ACCURACY, expected_success
from pettingllms.envs.tasks.team_design.graph import (
    LABELS,
    Executor,
    Limits,
    TeamGraph,
    executor_role,
    parse_graph,
    short_text,
)
from pettingllms.envs.tasks.team_design.structures import (
    chain,
    is_readers_and_combiner,
    readers_and_combiner,
    single,
    vote,
)
from pettingllms.types import Scored

LIMITS = Limits(num_parts=2, max_executors=3, max_rounds=2, max_reads=2)
COST = 0.02
GOOD = {"team": [{"role": "executor_1", "reads": ["a", "b"]}], "answers": "executor_1"}


def design_with(env: Any, text: str) -> Any:
    """The step that a designer's reply leads to."""
    state = env.reset(env.tasks("train")[0], 0)
    return env.step(state, {"designer": text})


def finished(env: Any, player: str, seed: int) -> tuple[Any, list[Any]]:
    """The last state and the results of all steps."""
    state, rng, results = env.reset(env.tasks("train")[seed], 0), random.Random(seed), []
    while roles := env.acting(state):
        results.append(env.step(state, {r: env.player(player)(env, state, r, rng) for r in roles}))
        state = results[-1].state
    return state, results


def test_a_designer_cannot_profit_from_an_invalid_graph() -> None:
    """Every regular end is worth more to the designer than an invalid graph or a reply that a
    limit cuts, for any team that the limits allow and any success."""
    env = make_env("team_design-v1", max_rounds=2)
    invalid = design_with(env, "no graph").rewards
    truncated = env.limit_rewards(("designer",))
    assert invalid.team == Scored(0.0)
    worth = env.config.invalid_reward
    assert truncated.team == Scored(worth)
    ends = []
    for seed in range(200):
        _, results = finished(env, "random", seed)
        end = results[-1].rewards
        ends.append(end.agent["designer"].value + end.team.value)
    assert min(ends) > worth
    with pytest.raises(ValueError, match="invalid_reward is -0.1"):
        make_env("team_design-v1", invalid_reward=-0.1, max_rounds=2)


# The environment ----------------------------------------------------------------------------------


def test_roles_that_the_graph_does_not_use_never_act() -> None:
    env = make_env("team_design-v1", terse=True)
    state = design_with(env, '["ab"]').state
    assert env.acting(state) == ("executor_1",)
    assert "not in the team" in env.observe(state, "executor_3")[0].text
    end = env.step(state, {"executor_1": "3"})
    assert env.acting(end.state) == ()


def test_an_executor_sees_its_parts_and_the_replies_it_hears_and_nothing_else() -> None:
    env = make_env("team_design-v1")
    team = [
        {"role": "executor_1", "reads": ["a"]},
        {"role": "executor_2", "reads": ["b"], "hears": ["executor_1"], "prompt": "Be careful."},
        {"role": "executor_3", "hears": ["executor_2"], "tools": ["tally"]},
    ]
    text = json.dumps({"team": team, "answers": "executor_3"})
    state = design_with(env, env.reply_of(text)).state
    state = env.step(state, {"executor_1": env.reply_of("7")}).state
    a, b = (" ".join(map(str, part)) for part in state.parts)
    seen = env.observe(state, "executor_2")[1].text
    assert seen == f"Instruction: Be careful.\nNumbers: {b}\nReply of executor_1: 7"
    assert env.observe(state, "executor_1")[1].text.endswith(f"Numbers: {a}")
    state = env.step(state, {"executor_2": "no digit"}).state
    assert env.observe(state, "executor_3")[1].text.endswith("Reply of executor_2: ?\nTally: none")


def test_turns_cost_the_designer_and_not_the_executors() -> None:
    env = make_env("team_design-v1", terse=True, turn_cost=0.05)
    state, results = finished(env, "solver", 3)
    assert env.success(state, "designer")
    end = results[-1].rewards
    assert end.team == Scored(1.0)
    assert end.agent == {"designer": Scored(-0.05 * 3)}
    assert all(r.rewards.process == {f"executor_{at}": Scored(0.2)}
               for at, r in enumerate(results[1:], 1))  # fmt: skip
    state = design_with(env, '["a","b","12"]').state
    assert env.step(state, {"executor_1": "ten"}).rewards.process == {"executor_1": Scored(-0.1)}


def test_alone_the_turns_cost_as_much() -> None:
    env = make_env("team_design-v1", terse=True, turn_cost=0.05, solo=True)
    state, results = env.reset(env.tasks("train")[0], 0), []
    for reply in ('["a","b","12"]', "1", "2", "3"):
        results.append(env.step(state, {"solo": reply}))
        state = results[-1].state
    assert env.acting(state) == ()
    assert results[-1].rewards.agent == {"solo": Scored(-0.05 * 3)}


def test_rounds_repeat_the_team_and_the_last_reply_counts() -> None:
    env = make_env("team_design-v1", max_rounds=2)
    text = json.dumps({**GOOD, "rounds": 2})
    state = design_with(env, env.reply_of(text)).state
    truth = sum(map(sum, state.parts)) % 10
    for digit in ((truth + 1) % 10, truth):
        assert env.acting(state) == ("executor_1",)
        state = env.step(state, {"executor_1": env.reply_of(str(digit))}).state
    assert env.acting(state) == ()
    assert env.success(state, "designer")


def test_a_fixed_design_has_no_designer() -> None:
    env = make_env("team_design-v1", design='["a","b","12"]')
    assert env.roles == ("executor_1", "executor_2", "executor_3")
    assert env.acting(env.reset(env.tasks("train")[0], 0)) == ("executor_1",)
    with pytest.raises(ValueError, match="env.design is .* cycle; set a valid graph"):
        make_env("team_design-v1", design='["2","1"]')


def test_the_designer_is_shown_no_number() -> None:
    env = make_env("team_design-v1")
    shown = {
        env.observe(env.reset(task, 0), "designer")
        and tuple(env.observe(env.reset(task, 0), "designer"))
        for task in env.tasks("train")[:20]
    }
    assert len(shown) == 1


def test_noise_changes_what_others_hear_and_not_what_an_executor_earns() -> None:
    env = make_env("team_design-v1", terse=True, noise=True, design='["ab","v1"]')
    changed = 0
    for task in env.tasks("train")[:300]:
        state = env.reset(task, 0)
        truth = sum(map(sum, state.parts)) % 10
        result = env.step(state, {"executor_1": str(truth)})
        assert result.rewards.process == {"executor_1": Scored(0.2)}
        assert result == env.step(state, {"executor_1": str(truth)}), "the same in every fork"
        changed += result.state.replies[0][1] != truth
    assert changed / 300 == pytest.approx(1 - ACCURACY[4], abs=0.1)


# The best structure -------------------------------------------------------------------------------


def all_graphs(num_parts: int, max_executors: int) -> list[TeamGraph]:
    """Every graph whose executors hear earlier ones and whose last executor answers. Votes read no
    parts: the exact value is defined without such executors, which vote over unlike numbers."""
    found = []
    for size in range(1, max_executors + 1):
        choices = []
        for number in range(1, size + 1):
            roles = [executor_role(heard) for heard in range(1, number)]
            reads = _subsets(LABELS[:num_parts])
            sums = [(r, h, "sum") for r in reads for h in _subsets(roles)]
            choices.append([*sums, *(((), h, "vote") for h in _subsets(roles) if h)])
        for team in itertools.product(*choices):
            executors = tuple(Executor(executor_role(at), *one) for at, one in enumerate(team, 1))
            found.append(TeamGraph(executors, executors[-1].role))
    return found


def _subsets(names: Any) -> list[tuple[str, ...]]:
    return [s for n in range(len(names) + 1) for s in itertools.combinations(names, n)]


def test_readers_and_a_combiner_are_the_best_of_all_graphs_for_two_parts() -> None:
    """By enumeration of all 724 graphs of up to three executors, and for each of all errors."""
    worth = {g: expected_success(g, 2, 2, base=10) - COST * g.num_turns for g in all_graphs(2, 3)}
    best = max(worth.values())
    winners = [g for g, value in worth.items() if value > best - 1e-9]
    assert len(worth) == 724
    assert all(is_readers_and_combiner(graph, 2) for graph in winners)
    second = max(v for g, v in worth.items() if not is_readers_and_combiner(g, 2))
    assert second == pytest.approx(worth[chain(2)]), "the chain comes next"
    assert best - second > 0.05


def test_one_executor_is_the_best_of_all_graphs_for_one_part() -> None:
    worth = {g: expected_success(g, 1, 2, base=3) - COST * g.num_turns for g in all_graphs(1, 3)}
    winners = [g for g, value in worth.items() if value > max(worth.values()) - 1e-9]
    assert winners == [single(1)]


def test_exact_values_of_known_structures() -> None:
    """The chance that two errors cancel is counted: 1/9 for two wrong digits of base 10."""
    two, three = ACCURACY[2], ACCURACY[3]
    right = two**3 + 3 * two * (1 - two) ** 2 / 9 + (1 - two) ** 3 * (8 / 81)
    assert expected_success(readers_and_combiner(2), 2, 2, 10) == pytest.approx(right)
    in_chain = two * three + (1 - two) * (1 - three) / 9
    assert expected_success(chain(2), 2, 2, 10) == pytest.approx(in_chain)
    assert expected_success(single(2), 2, 2, 10) == pytest.approx(ACCURACY[4])
    none_read = parse_graph('["a"]', LIMITS)
    assert expected_success(none_read, 2, 2, 10) == pytest.approx(0.1), "b is unread"
    agreed = two**3 + 3 * two**2 * (1 - two) + two * (1 - two) ** 2  # ties go to the first vote
    voted = expected_success(vote(1), 1, 2, 10, lambda n: 1.0 if n == 3 else ACCURACY[n])
    assert voted == pytest.approx(agreed, abs=1e-3), "with an exact vote"
    assert voted > expected_success(single(1), 1, 2, 10) > expected_success(vote(1), 1, 2, 10)


@pytest.mark.parametrize("noise", [False, True], ids=["noisy players", "noise"])
@pytest.mark.parametrize("player", ["single", "chain", "combiner"])
def test_scripted_teams_succeed_as_often_as_calculated(player: str, noise: bool) -> None:
    """With `noise`, for the same graph carried out by executors that never err."""
    structure = {"single": single, "chain": chain, "combiner": readers_and_combiner}[player]
    design = short_text(structure(2)) if noise else ""
    env = make_env("team_design-v1", terse=True, num_tasks=3000, noise=noise, design=design)
    name, role = ("solver", "executor_1") if noise else (player, "designer")
    share = sum(env.success(finished(env, name, at)[0], role) for at in range(3000)) / 3000
    assert share == pytest.approx(expected_success(structure(2), 2, 2, 10), abs=0.03)
