"""Tournaments: the order found is the right one, players are equal, and any player can enter."""

import json
import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fakes import in_memory

pytest.importorskip("openskill")

from toys import Duel, Relay

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError, PettingError
from pettingllms.evaluation.tournament import Tournament, parse_entries, run_tournament
from pettingllms.evaluation.tournament import games as playing
from pettingllms.league.standings import Game, standings
from pettingllms.runs.checkpoint import State
from pettingllms.runs.folder import RunFolder

SHARES = ("1", "0.9", "0.75", "0.6", "0.45", "0.3", "0.15", "0")
LADDER = [f"minimax~{share}" for share in SHARES]
"""Players of tic-tac-toe in the order of their strength, the best first."""
NUM_ROUNDS = 30
NUM_GAMES = 1680
"""28 pairs, 30 rounds, both players: 60 games a pair."""


def held(words: list[str], num_rounds: int, seed: int = 0, env: Any = None) -> Any:
    env = env or make_env("tic_tac_toe-v1")
    entries = parse_entries(env, words)
    return run_tournament(Tournament(env, entries, num_rounds, seed), notify=print)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_eight_players_of_known_strength_are_put_in_order_by_1680_games(seed: int) -> None:
    entered = random.Random(seed).sample(LADDER, len(LADDER))
    found = held(entered, NUM_ROUNDS, seed)
    assert found.num_games == NUM_GAMES
    assert found.players == LADDER
    best, worst = found.ratings.of(LADDER[0]), found.ratings.of(LADDER[-1])
    assert best.mu - best.margin > worst.mu + worst.margin, "and surely so at the ends"
    assert found.payoff.total("minimax~1").losses == 0, "minimax never loses"


def test_every_pair_meets_equally_often_in_every_role(monkeypatch: pytest.MonkeyPatch) -> None:
    games: list[Game] = []
    monkeypatch.setattr(playing, "standings", lambda _, some, __: games.extend(some))
    held(["minimax", "noisy", "random"], 4)
    counts = Counter((game.player, game.opponent, game.position) for game in games)
    assert len(counts) == 3 * 2
    assert set(counts.values()) == {4}


def test_assignments_of_one_round_start_from_the_same_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = make_env("tic_tac_toe-v1", max_opening=4)
    starts: Counter[str] = Counter()
    plain = env.reset

    def reset(task: Any, seed: int) -> Any:
        board = plain(task, seed)
        starts[f"{task.id} {board.cells}"] += 1
        return board

    monkeypatch.setattr(env, "reset", reset)
    held(["minimax", "random"], 12, env=env)
    assert set(starts.values()) == {2}
    assert len({key.split()[1] for key in starts}) > 3


def test_a_tournament_follows_from_its_seed() -> None:
    words = ["minimax", "noisy", "random"]
    one, same, other = (held(words, 5, seed).to_json() for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_standings_do_not_depend_on_which_game_ended_first() -> None:
    games = [Game(n % 3, "a", "b", player, n % 2 / 2) for n in range(9) for player in "xo"]
    games += [Game(0, "a", "c", "x", 1.0)]
    assert standings("abc", games, 0).to_json() == standings("abc", games[::-1], 0).to_json()


def test_games_that_failed_are_counted_apart() -> None:
    found = standings("ab", [Game(0, "a", "b", "x", 1.0), Game(0, "a", "b", "o", None)], 0)
    rows = list(found.rows())
    assert [row["unfinished"] for row in rows] == [1, 1]
    assert [row["games"] for row in rows] == [1, 1]


def test_an_order_that_changed_in_the_last_round_is_said_to_be_unsure() -> None:
    upset = [Game(0, "a", "b", "x", 1.0), Game(1, "b", "a", "x", 1.0), Game(1, "b", "a", "o", 1.0)]
    assert "play more" in standings("ab", upset, 0).verdict
    calm = [Game(number, "b", "a", "x", 1.0) for number in range(5)]
    assert standings("ab", calm, 0).verdict == "The order is stable since game 1."


def run_folder(path: Path, names: dict[str, bytes], policies: tuple[str, ...] = ("p",)) -> Path:
    """A run that was trained: its policies, and snapshots of them."""
    config = parse_config(
        {
            "env": {"id": "toys:Duel"},
            "algo": {"type": "grpo"},
            "policies": {name: {"kind": "lora", "model": "m"} for name in policies},
            "roles": {"a": policies[0], "b": policies[-1]},
        }
    )
    return saved_run(path, config, names)


def saved_run(path: Path, config: RunConfig, names: dict[str, bytes]) -> Path:
    folder = RunFolder(path)
    folder.create(config)
    writer = folder.checkpoint(State(step=5, versions=dict.fromkeys(config.policies, 5)))
    assert writer is not None
    for name, content in names.items():
        writer.add(name, {"weights": content})
    writer.finish(1)
    return path


def test_runs_and_their_snapshots_enter_with_their_own_weights(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "duel-1", {"p": b"now", "p@0": b"zero", "p@10": b"ten"})
    words = [str(run), f"{run}@all", f"first={run}@0", "random", "calm=random~0.5"]
    entries = {e.name: e for e in parse_entries(Duel(), words)}
    assert list(entries) == ["duel-1", "duel-1@0", "duel-1@10", "first", "random", "calm"]
    files = {name: in_memory(e.files).get("weights") for name, e in entries.items()}
    assert files["duel-1"] == b"now"
    assert files["duel-1@10"] == b"ten"
    assert files["first"] == files["duel-1@0"] == b"zero"
    assert files["random"] is None
    assert entries["duel-1@0"].run is not None
    assert entries["calm"].spec.name == "random~0.5"


def test_a_run_with_several_policies_must_name_one(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "r", {"p": b"1", "q": b"2"}, ("p", "q"))
    found = parse_entries(Duel(), [f"{run}#p", f"{run}#q"])
    assert [(e.name, in_memory(e.files)["weights"]) for e in found] == [
        ("r#p", b"1"),
        ("r#q", b"2"),
    ]
    with pytest.raises(ConfigError, match="#POLICY"):
        parse_entries(Duel(), [str(run), "random"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["random"], "a tournament needs at least two"),
        (["random", "random"], "duplicate name"),
        (["random", "randam"], "did you mean 'random'"),
        (["random", "http://127.0.0.1:1/v1"], "cannot reach"),
        (["random", "http://user:pw@127.0.0.1:1/v1#m"], "must have no user, password or query"),
        (["random", "random~7"], "write a number from 0 to 1"),
    ],
)
def test_invalid_entry_is_rejected(words: list[str], problem: str) -> None:
    with pytest.raises(PettingError, match=problem):
        parse_entries(Duel(), words)


def test_a_snapshot_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "r", {"p": b"1", "p@10": b"2"})
    with pytest.raises(ConfigError, match="did you mean 'p@10'"):
        parse_entries(Duel(), ["random", f"{run}@11"])


def test_a_game_for_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="has one role"):
        held(["random", "minimax"], 1, env=make_env("tic_tac_toe-v1", solo=True))


def test_players_behind_a_server_play(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    from pettingllms.runtime.http_client import JsonClient

    async def nine(self: Any, body: Any) -> Any:
        assert body["model"] == "big"
        assert body["temperature"] == 0.25
        return {"choices": [{"message": {"content": "9"}, "finish_reason": "stop"}]}

    monkeypatch.setattr(JsonClient, "post", nine)
    env = Relay()
    entries = parse_entries(env, ["http://localhost:1/v1#big", "random"])
    found = run_tournament(Tournament(env, entries, 10, temperature=0.25), notify=print)
    assert found.players == ["big", "random"]
    assert found.payoff.between("big", "random").losses == 0


def test_a_key_goes_to_its_own_server_and_a_model_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("httpx")
    from servers import first_free_cell, serving

    monkeypatch.setenv("PETTINGLLMS_TEST_KEY", "sk-secret")
    env = make_env("tic_tac_toe-v1")
    with serving(first_free_cell) as one, serving(first_free_cell, ("b", "c")) as two:
        words = [one.url, f"{two.url}#b"]
        with pytest.raises(ConfigError, match="servers are used"):
            parse_entries(env, words, ["PETTINGLLMS_TEST_KEY"])
        entries = parse_entries(env, words, [f"{one.url}=PETTINGLLMS_TEST_KEY"])
        found = run_tournament(Tournament(env, entries, 1), notify=print)
    assert sorted(found.players) == ["b", "tiny/model"]
    assert not found.unfinished
    assert {"Bearer sk-secret"} == set(one.auth)
    assert {None} == set(two.auth)


def test_a_run_that_only_reads_is_refused_where_images_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ray", "torch", "transformers"):
        pytest.importorskip(package)
    from fakes import FakeRun, Watched, faked

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": str(model)}},
        }
    )
    run = saved_run(tmp_path / "run", config, {"p": b"1"})
    env = make_env("tic_tac_toe-v1", observation="image")
    tournament = Tournament(env, parse_entries(env, [str(run), "random"]), 1)
    with pytest.raises(ConfigError, match="shows images, and .* text-only"):
        run_tournament(tournament, notify=print)
    (model / "config.json").write_text('{"model_type": "qwen3_vl"}')
    monkeypatch.setattr("pettingllms.cluster.inference_team.ray_running", lambda _: nullcontext())
    with faked(FakeRun(Watched()), lambda *_: "5"):
        assert not run_tournament(tournament, notify=print).unfinished


def test_the_co_players_of_a_run_do_not_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ray", "torch", "transformers"):
        pytest.importorskip(package)
    from fakes import FakeRun, Watched, faked, legal_cell, train_with_fakes

    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "lora", "model": "m"},
                "rival": {"kind": "scripted", "player": "random"},
            },
            "roles": {"player_x": "p", "player_o": "rival"},
            "co_players": {"phases": [{"members": {"rival": 1.0}}]},
            "train": {"num_steps": 1},
        }
    )
    train_with_fakes(config, tmp_path / "run", legal_cell)
    monkeypatch.setattr("pettingllms.cluster.inference_team.ray_running", lambda _: nullcontext())
    env = make_env("tic_tac_toe-v1", terse=True)
    with faked(FakeRun(Watched()), legal_cell):
        entries = parse_entries(env, [str(tmp_path / "run"), "random"])
        found = run_tournament(Tournament(env, entries, 2), notify=print)
    assert found.num_games == 4
    assert not found.unfinished


def test_the_command_prints_a_table_and_writes_results_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from typer.testing import CliRunner

    from pettingllms.cli.main import app

    words = ["minimax", "--player", "random", "--player", "half=noisy"]
    arguments = ["tournament", "tic_tac_toe-v1", *words, "--rounds", "8", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for word in ("minimax", "half", "rating", "won", "drawn", "lost", "48 games"):
        assert word in result.output
    data = json.loads((tmp_path / "results.json").read_text())
    assert [row["player"] for row in data["players"]] == ["minimax", "half", "random"]
    assert data["payoff"]["minimax"]["random"] == data["payoff"]["random"]["minimax"][::-1]
    assert sum(data["payoff"]["minimax"]["half"]) == 16
    assert (tmp_path / "heat_map.png").read_bytes().startswith(b"\x89PNG")
