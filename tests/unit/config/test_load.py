from pathlib import Path

import pytest

from pettingllms.config import CriticConfig, RunConfig, load_config, parse_config, to_toml
from pettingllms.errors import ConfigError
from pettingllms.registry import ENVIRONMENTS

FULL = {"kind": "full", "model": "m"}


def run(**sections) -> RunConfig:
    base = {"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}, "policies": {"p": FULL}}
    return parse_config({**base, **sections})


def problems(**sections) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run(**sections)
    return caught.value.problems


def test_a_section_with_a_bad_key_is_still_checked_against_the_others() -> None:
    found = problems(algo={"type": "at_grpo"}, rollout={"num_sample": 8, "type": "linear"})
    assert len(found) == 2
    assert "rollout.num_sample: unknown key" in found[0]
    assert "'at_grpo' needs rollout.type" in found[1]


def test_a_section_that_has_two_kinds_of_problems_shows_those_it_can() -> None:
    found = problems(env={"id": "hanabi-v1", "num_color": 3, "num_colors": 1, "num_ranks": 1})
    assert len(found) == 2
    assert "env.num_color: unknown key; did you mean 'num_colors'?" in found
    assert "lower hand_size" in found[1]


def test_the_path_of_an_environment_is_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "01_write_an_environment.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    path = tmp_path / "run.toml"
    path.write_text(
        '[env]\nid = "mine.py:RockPaperScissors"\n[algo]\ntype = "grpo"\n'
        '[policies.p]\nkind = "full"\nmodel = "m"\n'
    )
    assert load_config(path).env.id == f"{tmp_path}/mine.py:RockPaperScissors"


def test_so_are_those_of_algorithms_and_judges_and_overrides_are_taken_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import pettingllms as pl\n"
        "class Mine(pl.Algorithm):\n    def groups(self, episodes): return []\n"
        "    def advantages(self, group): return []\n"
        "class Fair(pl.Judge):\n    async def score(self, submission): return pl.Scored(0.5)\n"
    )
    path = tmp_path / "run.toml"
    path.write_text(
        '[env]\nid = "story-v1"\n[algo]\ntype = "mine.py:Mine"\n'
        '[policies.p]\nkind = "full"\nmodel = "m"\n'
        '[judge]\nby = "fair"\n[judge.judges.fair]\nkind = "mine.py:Fair"\n'
    )
    config = load_config(path)
    assert config.algo.type == f"{tmp_path}/mine.py:Mine"
    assert config.judge.judges["fair"].kind == f"{tmp_path}/mine.py:Fair"
    monkeypatch.chdir(tmp_path.parent)
    named = f"algo.type={tmp_path.name}/mine.py:Mine"
    assert load_config(path, [named]).algo.type == config.algo.type


def test_one_policy_plays_every_role() -> None:
    assert run().roles == {"player_x": "p", "player_o": "p"}


def test_levels_are_nothing_but_the_map_from_roles_to_policies() -> None:
    two = {"x": FULL, "o": {"kind": "lora", "model": "m"}}
    roles = {"player_x": "x", "player_o": "o"}
    assert run(policies=two, roles=roles).roles == roles
    assert run(env={"id": "tic_tac_toe-v1", "solo": True}).roles == {"solo": "p"}


def test_the_rollout_follows_from_the_algorithm() -> None:
    assert run().rollout.type == "linear"
    for continuation in ("auto", "episode"):
        tree = run(algo={"type": "at_grpo"}, rollout={"continuation": continuation})
        assert tree.rollout.type == "tree"


def test_every_problem_of_a_file_is_shown_at_once() -> None:
    found = problems(
        env={"id": "tic_tac_toe-v1", "num_task": 3, "illegal_reward": "much"},
        algo={"type": "grpoo"},
        rollout={"num_samples": 0, "max_step": 3},
        policies={"p": {"kind": "lora", "model": "m", "rnak": 4}, "q": {"kind": "fool"}},
        roles={"player_x": "z"},
        rewards={"team": 1},
    )
    text = "\n".join(found)
    for expected in [
        "env.num_task: unknown key; did you mean 'num_tasks'?",
        "env.illegal_reward: ",
        "algo.type: no algorithm is called 'grpoo'; did you mean 'grpo'?",
        "rollout.num_samples: Input should be greater than or equal to 1",
        "rollout.max_step: unknown key; did you mean 'max_steps'?",
        "policies.p.rnak: unknown key; did you mean 'rank'?",
        "policies.q: ",
        "rewards: unknown key; did you mean 'reward'?",
    ]:
        assert expected in text
    assert len(found) == 8


def test_a_missing_section_says_what_it_is_for() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"policies": {"p": FULL}})
    assert caught.value.problems == [
        'env: missing. The environment and its options. Such as [env] id = "tic_tac_toe-v1"',
        'algo: missing. The algorithm and its options. Such as [algo] type = "grpo"',
    ]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"roles": {"playr_x": "p"}}, "has no such role; did you mean 'player_x'?"),
        ({"roles": {"player_x": "q"}}, "no policy is called 'q'"),
        ({"policies": {"p": FULL, "q": FULL}}, "player_x, player_o have no policy"),
        (
            {"policies": {"p": FULL, "q": FULL}, "roles": {"player_x": "p", "player_o": "p"}},
            "policies.q: has no role",
        ),
        (
            {"policies": {"p": {"kind": "scripted", "player": "minmax"}}},
            "has no player called 'minmax'; did you mean 'minimax'?",
        ),
        ({"rollout": {"type": "tree"}}, "'grpo' needs rollout.type = \"linear\""),
        (
            {"algo": {"type": "counterfactual"}, "rollout": {"type": "linear"}},
            "'counterfactual' needs rollout.type = \"replay\"",
        ),
        (
            {"algo": {"type": "counterfactual"}, "rollout": {"replay": "silent"}},
            "'counterfactual' cannot use replays that are \"silent\"; set one of auto, resampled",
        ),
        (
            {"algo": {"type": "remove_role"}, "rollout": {"replay": "resampled"}},
            "'remove_role' cannot use replays that are \"resampled\"; set one of auto, silent",
        ),
        (
            {"algo": {"type": "counterfactual"}, "rollout": {"replay": "kept"}},
            "rollout.replay: .*froze later replies.* leave the key out",
        ),
        (
            {"algo": {"type": "at_grpo"}, "rollout": {"continuation": "none"}},
            'has late rewards.* set rollout.continuation = "auto"',
        ),
        ({"rollout": {"num_samples": 1}}, "'grpo' compares at least 2 samples"),
        ({"env": {"id": "tic_tac_toe-v1", "opponent": "me"}}, "env.opponent: "),
        ({"env": 3}, 'env: not a table with id = "NAME"'),
        ({"algo": {}}, 'algo: not a table with type = "NAME"'),
        ({"algo": "grpo"}, "algo: not a table"),
        ({"policies": []}, "policies: "),
        ({"policies": {}}, "policies: "),
        ({"policies": {"p": {"kind": "fill"}}}, "kind is 'fill'; did you mean 'full'"),
        ({"policies": {"../p": {"kind": "full", "model": "m"}}}, "policies.../p: the name is also"),
        (
            {"loss": {"type": "gpso"}},
            "loss.type: no loss is called 'gpso'; did you mean 'gspo'?",
        ),
        (
            {"loss": {"kl_coef": 0.1}, "train": {"init_from": "runs/sft-1"}},
            "loss.kl_coef: the reference models would be .* not the weights that train.init_from",
        ),
        ({"policies": {"p": {"model": "m"}}}, "kind is missing"),
        ({"policies": {"p": {"kind": "full"}}}, "policies.p.*model: missing"),
        ({"rollout": {"num_samples": "abc"}}, "valid integer, got 'abc'"),
        ({"roles": "x"}, "roles: "),
        ({"seed": True}, "seed: "),
        ({"rollout": {"num_samples": "8"}}, "rollout.num_samples: "),
        ({"reward": {"team": float("nan")}}, "reward.team: "),
        ({"reward": {"team": 0, "agent": 0, "process": 0}}, "all weights are 0"),
        ({"env": {"id": "pettingllms.envs:Environment"}}, "env: cannot be created: TypeError"),
    ],
)
def test_what_cannot_run_is_refused_with_the_fix(sections: dict, expected: str) -> None:
    import re

    assert any(re.search(expected, problem) for problem in problems(**sections))


def test_an_algorithm_that_forks_refuses_an_environment_that_cannot(monkeypatch) -> None:
    monkeypatch.setattr(ENVIRONMENTS.load("tic_tac_toe-v1"), "can_fork", False)
    for continuation in ("episode", "none"):
        (found,) = problems(algo={"type": "at_grpo"}, rollout={"continuation": continuation})
        assert "'at_grpo' needs an environment that can fork" in found
        assert 'set algo.type = "grpo"' in found


def test_an_algorithm_that_replays_refuses_an_environment_that_cannot_fork(monkeypatch) -> None:
    monkeypatch.setattr(ENVIRONMENTS.load("tic_tac_toe-v1"), "can_fork", False)
    for name in ("counterfactual", "remove_role"):
        (found,) = problems(algo={"type": name})
        assert f"'{name}' needs an environment that can fork" in found


def test_auto_becomes_the_replays_that_the_algorithm_needs() -> None:
    for name, kind in (("counterfactual", "resampled"), ("remove_role", "silent")):
        rollout = run(algo={"type": name}, rollout={"num_samples": 1}).rollout
        assert (rollout.type, rollout.replay) == ("replay", kind)
    rollout = run(algo={"type": "counterfactual"}, rollout={"replay": "resampled"}).rollout
    assert rollout.replay == "resampled"
    assert run().rollout.replay == "auto"


@pytest.mark.parametrize("name", ["plan_path-v1", "sokoban-v1", "sudoku-v1", "code-v1", "math-v1"])
def test_puzzles_and_tasks_that_reward_the_team_at_the_end_have_late_rewards(name: str) -> None:
    (found,) = problems(
        env={"id": name}, algo={"type": "at_grpo"}, rollout={"continuation": "none"}
    )
    assert f"'{name}' has late rewards" in found


def test_a_curriculum_refuses_the_success_of_best_branches(monkeypatch) -> None:
    sections = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "at_grpo"},
        "curriculum": {"key": "min_distance", "levels": [2, 3]},
    }
    assert run(**sections).rollout.select == "best"
    monkeypatch.setattr(ENVIRONMENTS.load("plan_path-v1"), "late_rewards", False)
    (found,) = problems(**sections)
    assert "the success that a curriculum needs" in found
    assert 'set rollout.select = "sampled" or rollout.continuation = "episode"' in found
    run(**sections, rollout={"select": "sampled"})
    run(**sections, rollout={"continuation": "episode"})
    run(**sections | {"algo": {"type": "grpo"}})


def test_overrides_reach_every_depth_and_are_read_as_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[env]\nid = "tic_tac_toe-v1"\n[algo]\ntype = "grpo"\n')
    config = load_config(
        path,
        [
            "seed=7",
            'policies."qwen2.5".kind=full',
            'policies."qwen2.5".model=org/name',
            "rollout.env_timeout=0.5",
            "rollout={num_samples=6}",
        ],
    )
    assert config.seed == 7
    assert config.policies["qwen2.5"].model == "org/name"
    assert config.rollout.env_timeout == 0.5
    assert config.rollout.num_samples == 6


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", "is not of the form section.key=value"),
        ("=3", "is not of the form"),
        ("env.id.x=3", "'id' is a value, not a table"),
        ("rollout.num_smaples=3", "did you mean 'num_samples'"),
    ],
)
def test_a_bad_override_is_a_problem_like_any_other(tmp_path, override, expected) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[env]\nid = "tic_tac_toe-v1"\n[algo]\ntype = "grpo"\n')
    with pytest.raises(ConfigError, match=expected) as caught:
        load_config(path, [override])
    assert any("policies: missing" in problem for problem in caught.value.problems)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(to_toml(run()), encoding="utf-8-sig")
    assert load_config(path) == run()


def test_the_resolved_configuration_reads_back_as_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "resolved.toml"
    config = run(policies={"p": {"kind": "lora", "model": 'a "quoted" \\ name'}}, seed=3)
    path.write_text(to_toml(config))
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("text", "expected"), [(None, "cannot be read"), ("env = [", "not TOML"), (b"\xff", "not TOML")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text, expected: str) -> None:
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=expected):
        load_config(path)


# Critics


def test_an_algorithm_that_needs_values_gets_a_critic() -> None:
    assert run(algo={"type": "grpo"}).critic is None
    assert run(algo={"type": "ppo"}).critic == CriticConfig(kind="head")
    for name in ("mappo", "vdn", "qmix"):
        assert run(algo={"type": name}).critic == CriticConfig(kind="model")
    own = run(algo={"type": "ppo"}, critic={"kind": "model", "lr": 0.1}).critic
    assert own == CriticConfig(kind="model", lr=0.1)
    assert run(algo={"type": "qmix"}, critic={"lr": 0.1}).critic == CriticConfig(
        kind="model", lr=0.1
    )


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"algo": {"type": "grpo"}, "critic": {}}, "critic: 'grpo' needs no values"),
        (
            {"algo": {"type": "mappo"}, "critic": {"kind": "head"}},
            "critic.kind: 'mappo' has one critic for all roles",
        ),
        ({"algo": {"type": "ppo"}, "critic": {"model": "m"}}, "critic.model: a head is part of"),
        ({"algo": {"type": "vdn"}, "critic": {"clip": 0.2}}, "critic.clip: 'vdn' trains sums"),
        ({"algo": {"type": "qmix"}, "reward": {"team": 0.0}}, "reward.team: 'qmix' uses only team"),
        ({"algo": {"type": "ppo"}, "critic": {"kid": "head"}}, "critic.kid: unknown key"),
    ],
)
def test_a_critic_that_cannot_be_is_refused_with_the_fix(sections: dict, expected: str) -> None:
    (problem,) = problems(**sections)
    assert problem.startswith(expected)


def test_a_resolved_critic_reads_back(tmp_path: Path) -> None:
    for name in ("ppo", "qmix"):
        config = run(algo={"type": name})
        path = tmp_path / f"{name}.toml"
        path.write_text(to_toml(config))
        assert load_config(path) == config


@pytest.mark.parametrize("algo", ["grpo", "at_grpo", "vdn", "counterfactual"])
def test_bootstrapping_a_cut_needs_a_critic_of_turns(algo: str) -> None:
    rollout = {"on_limit": "bootstrap", "continuation": "episode"}
    (found,) = problems(algo={"type": algo}, rollout=rollout)
    assert found.startswith('rollout.on_limit: "bootstrap" needs a critic')
    assert f"'{algo}' has none" in found


def test_a_critic_of_turns_can_bootstrap_a_cut() -> None:
    for algo in ("ppo", "mappo"):
        config = run(algo={"type": algo}, rollout={"on_limit": "bootstrap"})
        assert config.rollout.on_limit == "bootstrap"


def test_a_limit_reward_that_would_not_count_is_refused() -> None:
    (found,) = problems(reward={"agent": 0.0})
    assert "rewards a cut at the level of the agent, and reward.agent is 0" in found
    assert run(reward={"agent": 0.0}, rollout={"on_limit": "exclude"}).reward.agent == 0
    (team,) = problems(env={"id": "plan_path-v1"}, reward={"team": 0.0})
    assert "reward.team is 0" in team
