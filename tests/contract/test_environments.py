"""Every environment that ships keeps the contract, as a team and solo, at every usual option."""

import inspect
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import load_config, parse_config
from pettingllms.envs import check_env, make_env
from pettingllms.registry import ENVIRONMENTS

VARIANTS = [
    *((name, {}) for name in ENVIRONMENTS.names()),
    *((name, {"solo": True}) for name in ENVIRONMENTS.names()),
    *((name, {"terse": True}) for name in ENVIRONMENTS.names()),
    *((name, {"terse": True, "solo": True}) for name in ENVIRONMENTS.names()),
    ("tic_tac_toe-v1", {"max_opening": 8}),
    ("tic_tac_toe-v1", {"solo": True, "opponent": "minimax"}),
    ("hanabi-v1", {"num_players": 5}),
    ("hanabi-v1", {"num_players": 2, "num_colors": 2, "num_ranks": 3, "hand_size": 2}),
    ("sudoku-v1", {"size": 9}),
    ("sudoku-v1", {"roles": "tool_planner"}),
    ("sokoban-v1", {"roles": "tool_planner", "num_boxes": 2}),
    ("plan_path-v1", {"roles": "tool_planner", "terse": True}),
    ("iterated_dilemma-v1", {"talk": True}),
    ("iterated_dilemma-v1", {"talk": True, "terse": True, "shows_end": False}),
    ("negotiation-v1", {"always_gain": False, "talk": False, "discount": 0.9}),
    ("story-v1", {"rivals": True}),
    ("story-v1", {"rivals": True, "solo": True}),
    ("knowledge-v1", {"num_facts": 6, "top_k": 5, "tool_calls": "mistral"}),
    ("werewolf-v1", {"num_players": 8, "num_wolves": 2}),
    ("werewolf-v1", {"num_players": 5, "num_talks": 0}),
    ("math-v1", {"order": "together", "max_rounds": 1}),
    ("math-v1", {"data": "statements"}),
    ("debate-v1", {"data": "statements", "verifier": 0.8, "reasons": True}),
    ("debate-v1", {"num_debaters": 8, "num_rounds": 1}),
    ("team_design-v1", {"design": '["a","b","12"]'}),
    ("team_design-v1", {"min_parts": 1, "num_parts": 4, "max_executors": 6, "max_rounds": 2}),
    ("propose-v1", {"domain": "sudoku", "num_proposals": 3, "num_given": 9}),
    ("propose-v1", {"num_solvers": 2, "num_proposals": 2, "num_given": 2, "max_number": 9}),
    ("propose-v1", {"proposes": False, "terse": True}),
    ("ledger-v1", {"question": "lookup", "num_rows": 9, "num_readers": 8}),
    ("ledger-v1", {"num_rows": 90, "num_digits": 2, "num_readers": 2}),
    ("ledger-v1", {"num_rows": 90, "num_digits": 2, "solo": True}),
    ("visual_relay-v1", {"observation": "text"}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_it_keeps_the_contract(name: str, options: dict) -> None:
    check_env(make_env(name, **options), num_episodes=10)


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_it_has_a_readme_and_two_players(name: str) -> None:
    import importlib
    from pathlib import Path

    module = importlib.import_module(type(make_env(name)).__module__)
    readme = Path(module.__file__).with_name("README.md").read_text()
    assert name in readme.splitlines()[0]
    assert len(make_env(name).players) >= 2


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_solo_is_one_role_and_one_line_of_configuration(name: str) -> None:
    assert len(make_env(name).roles) > 1
    assert len(make_env(name, solo=True).roles) == 1


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_the_environment_of_a_solo_form_is_made_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one may read a file of data."""
    kind, made = ENVIRONMENTS.load(name), []
    init = kind.__init__

    def counted(self: Any, *arguments: Any) -> None:
        made.append(type(self))
        init(self, *arguments)

    monkeypatch.setattr(kind, "__init__", counted)
    make_env(name, solo=True)
    assert made == [kind]


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_terse_prompts_are_short_and_answers_need_no_tags(name: str) -> None:
    usual, terse = make_env(name), make_env(name, terse=True)
    state = usual.reset(usual.tasks("train")[0], 0)
    acting = usual.acting(state)
    role = acting[0]

    def letters(env: Any) -> int:
        return sum(len(message.content) for message in env.observe(state, role))

    assert letters(terse) < letters(usual) / 4
    for player in terse.players.values():
        replies = {who: player(terse, state, who, random.Random(1)) for who in acting}
        assert not any("<" in reply for reply in replies.values())
        assert terse.step(state, replies).metrics["illegal"] == 0
        tagged = {**replies, role: f"<answer>{replies[role]}</answer>"}
        assert terse.step(state, tagged).metrics["illegal"] == 1


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_the_readme_states_late_rewards_as_declared(name: str) -> None:
    env = make_env(name)
    readme = (Path(inspect.getfile(type(env))).parent / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.startswith("| late rewards |"))
    assert row.startswith("| late rewards | yes" if env.late_rewards else "| late rewards | no")


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_the_readme_names_every_option(name: str) -> None:
    env = make_env(name)
    readme = (Path(inspect.getfile(type(env))).parent / "README.md").read_text(encoding="utf-8")
    options = readme[readme.index("Options:") :]
    described = {"id", "system_prompts"}  # in the reference, for all environments
    own = env.Config.model_fields.keys() - described
    assert not [key for key in own if f"`{key}`" not in options]


@pytest.mark.parametrize("name", ENVIRONMENTS.names())
def test_what_the_readme_says_to_type_works(name: str) -> None:
    """Its section of a configuration is taken as it stands, and the configuration that it names is
    there and of this environment."""
    folder = Path(inspect.getfile(ENVIRONMENTS.load(name))).parent
    readme = (folder / "README.md").read_text(encoding="utf-8")
    sections = tomllib.loads(re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)[0])
    policies = {"p": {"kind": "scripted", "player": "random"}}
    made = parse_config({**sections, "algo": {"type": "grpo"}, "policies": policies})
    assert made.env.id == name
    assert f"`pettingllms play {name}`" in readme
    (path,) = re.findall(r"`pettingllms train (configs/\w+\.toml)`", readme)
    assert load_config(Path(__file__).parents[2] / path).env.id == name
