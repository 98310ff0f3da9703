"""The search for team graphs finds the structure that is known to be best, within its budget."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pettingllms as pl
from pettingllms.cli.main import app
from pettingllms.envs.tasks.team_design.expected import expected_success
from pettingllms.envs.tasks.team_design.graph import Limits, parse_graph
from pettingllms.envs.tasks.team_design.structures import (
    is_readers_and_combiner,
    readers_and_combiner,
    single,
)
from pettingllms.errors import ConfigError
from pettingllms.evaluation.team_search import Record, TeamSearch, search_team

BUDGET = 4000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_search_finds_readers_and_a_combiner(seed: int) -> None:
    """The best structure is proven by enumeration in tests/unit/envs/test_team_design.py."""
    found = search_team(TeamSearch("noisy", BUDGET, seed=seed))
    assert found.num_episodes == BUDGET
    assert is_readers_and_combiner(found.best, 2)
    exact = expected_success(found.best, 2, 2, base=10) - 0.02 * found.best.num_turns
    last = found.curve[-1]
    assert last["return"] == pytest.approx(exact, abs=2 / last["episodes"] ** 0.5)


def test_search_adapts_to_the_executors() -> None:
    """Executors that never err need no structure: the cheapest team is one executor."""
    found = search_team(TeamSearch("solver", 1500, seed=1))
    assert found.best == single(2)


@pytest.mark.parametrize("budget", [1, 37, 500])
def test_search_uses_exactly_its_budget_and_repeats(budget: int) -> None:
    search = TeamSearch("noisy", budget, seed=5)
    first, again = search_team(search), search_team(search)
    assert first == again
    assert first.num_episodes == budget == first.curve[-1]["num_episodes"]
    assert sum(one["episodes"] for one in first.graphs) <= budget
    assert json.loads(json.dumps(first.to_json())) == first.to_json()


def test_search_ends_after_its_tokens() -> None:
    free = search_team(TeamSearch("noisy", 2000, seed=1))
    cut = search_team(TeamSearch("noisy", 2000, max_tokens=5000, seed=1))
    assert cut.num_tokens >= 5000
    assert cut.curve[-2]["num_tokens"] < 5000
    assert cut.curve == free.curve[: len(cut.curve)]


def test_luck_in_few_episodes_does_not_win() -> None:
    lucky = Record(single(2), num_episodes=10, total=10.0)
    proven = Record(readers_and_combiner(2), num_episodes=400, total=340.0)
    assert lucky.mean > proven.mean
    assert lucky.rank < proven.rank


def test_python_call_and_command_give_the_same_result(tmp_path: Path) -> None:
    found = pl.search_team("noisy", num_episodes=200, seed=2, base=5)
    words = ["search-team", "base=5", "--episodes", "200", "--seed", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "results.json").read_text())
    assert {name: written[name] for name in found.to_json()} == found.to_json()
    limits = Limits(2, 3, 1, 8)
    assert parse_graph(written["design"], limits) == found.best
    assert pl.make_env("team_design-v1", design=written["design"]).roles[0] == "executor_1"


def test_wrong_requests_are_rejected() -> None:
    with pytest.raises(ConfigError, match="is 0; expected at least 1"):
        TeamSearch(num_episodes=0)
    with pytest.raises(ConfigError, match="fixes the graph"):
        TeamSearch(options={"design": '["a"]'})
    result = CliRunner().invoke(app, ["search-team", "solo=true", "--episodes", "10"])
    assert isinstance(result.exception, ConfigError)
    assert "no executors" in str(result.exception)
    with pytest.raises(ConfigError, match="nosy"):
        search_team(TeamSearch("nosy", 10))
    with pytest.raises(ConfigError, match="human"):
        search_team(TeamSearch("human", 10))
