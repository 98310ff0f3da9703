"""Co-players on a schedule: who is drawn when, and the metrics of a switch."""

from collections import Counter
from typing import Any

import pytest

from pettingllms.config import parse_config
from pettingllms.errors import ConfigError
from pettingllms.league import CoPlayers, make_co_players
from pettingllms.league.pool import Snapshot
from pettingllms.types import Task

TASKS = [Task(f"t{at}") for at in range(200)]


def config_with(*phases: dict[str, Any], **co_players: Any) -> Any:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "lora", "model": "m"},
                "weak": {"kind": "scripted", "player": "random"},
                "strong": {"kind": "frozen", "model": "m"},
            },
            "roles": {"player_x": "p", "player_o": "weak"},
            "co_players": {"phases": [*phases, {"members": {"strong": 1.0}}], **co_players},
        }
    )


def schedule_of(*phases: dict[str, Any], **options: Any) -> CoPlayers:
    return made_from(config_with(*phases, **options))


def made_from(config: Any) -> CoPlayers:
    return make_co_players(config.co_players, config.roles, config.policies, config.seed)


def met(co_players: CoPlayers, step: int) -> Counter[str]:
    assignments = co_players.assignments(step, TASKS)
    assert {assignment["player_x"] for assignment in assignments.values()} == {"p"}
    return Counter(assignment["player_o"] for assignment in assignments.values())


def test_co_players_fill_the_roles_of_policies_that_do_not_learn() -> None:
    co_players = schedule_of({"members": {"script:minimax": 1.0}, "until_step": 2})
    assert co_players.filled_roles == ("player_o",)
    assert co_players.learners == ["player_x"]
    assert met(co_players, 1) == {"script:minimax": 200}


def test_a_mixture_is_drawn_by_its_weights_and_the_same_each_time() -> None:
    co_players = schedule_of({"members": {"script:minimax": 1.0, "weak": 3.0}, "until_step": 2})
    found = met(co_players, 1)
    assert 25 < found["script:minimax"] < 80
    assert met(co_players, 1) == found
    assert met(co_players, 2) != found


def test_it_switches_after_a_step() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_step": 2})
    for step in (1, 2):
        assert set(met(co_players, step)) == {"weak"}
        metrics = co_players.record(step, 0.5)
    assert metrics["switched"] == 1
    assert set(met(co_players, 3)) == {"strong"}


def test_a_phase_whose_end_was_missed_ends_at_the_next_chance() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_step": 2})
    for step, reward in ((1, 0.5), (2, None)):
        assert "switched" not in co_players.record(step, reward)
    assert co_players.record(3, 0.5)["switched"] == 1
    late = schedule_of(
        {"members": {"weak": 1.0}, "until_reward": 0.8},
        {"members": {"script:minimax": 1.0}, "until_step": 2},
        window=1,
    )
    assert [("switched" in late.record(step, 0.1)) for step in (1, 2, 3)] == [False] * 3
    assert late.record(4, 0.9)["switched"] == 1
    assert late.record(5, 0.1)["switched"] == 1, "it should have ended after step 2"


def test_it_switches_when_the_learner_is_too_good_over_a_whole_window() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_reward": 0.8}, window=3)
    for step, reward in enumerate((0.9, 0.9, 0.1, 0.9, 0.9), start=1):
        assert "switched" not in co_players.record(step, reward)
    assert co_players.record(6, 0.9)["switched"] == 1
    assert co_players.phase == 1


def test_it_drifts_step_by_step() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_step": 1})
    co_players.config.phases[1].__dict__["drift"] = 3
    co_players.record(1, 0.5)
    shares = [co_players.mixture(step).get("strong", 0.0) for step in (2, 3, 4, 5, 6)]
    assert shares == [0.25, 0.5, 0.75, 1.0, 1.0]
    for step in (2, 3, 4, 5):
        assert sum(co_players.mixture(step).values()) == pytest.approx(1)


def test_what_a_switch_did_is_measured() -> None:
    co_players = schedule_of(
        {"members": {"weak": 1.0}, "until_step": 4}, window=2, recover_share=0.75
    )
    for step, reward in enumerate((0.2, 0.4, 0.8, 0.8), start=1):
        co_players.record(step, reward)
    found = [co_players.record(5 + at, r) for at, r in enumerate((0.2, 0.4, 0.5, 0.6, 0.8, 0.1))]
    assert found[0] == {"phase": 2.0, "reward": 0.2, "before": 0.8}
    assert found[1]["after"] == pytest.approx(0.3)
    assert found[1]["drop"] == pytest.approx(0.5)
    assert "steps_to_recover" not in found[3]
    assert found[4]["steps_to_recover"] == 5
    assert found[5]["steps_to_recover"] == 5


def test_forgetting_is_the_earlier_score_with_past_co_players_minus_the_current_one() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_step": 1})
    assert "forgetting" not in co_players.compare({0: 0.9})
    co_players.record(1, 0.9)
    assert co_players.compare({0: 0.7, 1: 0.2})["forgetting"] == pytest.approx(0.2)
    assert co_players.compare({0: 0.95, 1: 0.5})["forgetting"] == pytest.approx(-0.05)
    assert co_players.compare({0: 0.5, 1: 0.5})["forgetting"] == pytest.approx(0.45)


def test_a_step_without_rewards_moves_nothing() -> None:
    co_players = schedule_of({"members": {"weak": 1.0}, "until_step": 9})
    assert co_players.record(1, None) == {"phase": 1.0}
    assert co_players.recent == []


def test_snapshots_are_taken_when_the_schedule_names_them() -> None:
    co_players = schedule_of(
        {"members": {"weak": 1.0}, "until_step": 5}, {"members": {"p@3": 1.0}, "until_step": 8}
    )
    assert [co_players.due(step) for step in range(5)] == [[], [], [], ["p"], []]
    co_players.pool.append(Snapshot("p", 3, 3))
    assert co_players.due(3) == []


def test_it_goes_on_where_a_checkpoint_left_it() -> None:
    import json

    config = config_with({"members": {"weak": 1.0}, "until_step": 3})
    whole, cut = made_from(config), made_from(config)
    for step in range(1, 7):
        whole.record(step, step / 10)
        saved = json.loads(json.dumps(cut.state_dict()))
        cut = made_from(config)
        cut.load_state_dict(saved)
        cut.record(step, step / 10)
    assert cut == whole


@pytest.mark.parametrize(
    ("phases", "options", "problem"),
    [
        ([{"members": {"weak": 1.0}}], {}, "phase 1 never ends"),
        ([{"members": {"nobody": 1.0}, "until_step": 1}], {}, "no policy is called 'nobody'"),
        ([{"members": {"p": 1.0}, "until_step": 1}], {}, "'p' learns; name a snapshot of it"),
        ([{"members": {"script:best": 1.0}, "until_step": 1}], {}, "no player called 'best'"),
        (
            [{"members": {"p@3": 1.0}, "until_step": 9}],
            {},
            "may be needed in step 1, before",
        ),
        ([{"members": {"weak": 0.0}, "until_step": 1}], {}, "weights of members"),
        ([{"members": {"weak": 1.0}, "until_step": 1, "drift": 2}], {}, "no phase before it"),
        ([{"members": {"weak": 1.0}, "until_step": 1}], {"roles": ["x"]}, "has no such role"),
    ],
)
def test_what_cannot_be_kept_is_refused(phases: Any, options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_with(*phases, **options)
