"""The defects that sank the systems this one replaces.

Each claim is a check over real episodes. It is run on the code as it is, where it must pass, and
once more with the old defect put in, where it must fail: a check that cannot fail proves nothing.
"""

import dataclasses
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from toys import Relay, by_chance, play_with, roll

from pettingllms.algos import base as algos_base
from pettingllms.algos import make_algorithm
from pettingllms.algos.credit import turn_reward
from pettingllms.config import load_config, parse_config
from pettingllms.envs import StepResult, make_env
from pettingllms.errors import ConfigError, UnknownNameError
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS, Registry
from pettingllms.rollouts import Player, tree
from pettingllms.rollouts.context import RolloutContext
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.training.collect import collect
from pettingllms.types import Episode, Failed, Scored

Break = Callable[[pytest.MonkeyPatch], None]
LINEAR = ["grpo", "dr_grpo", "rloo", "magrpo", "dr_mas", "debate"]


def scripted(name: str, player: str = "random", num_tasks: int = 6, **options) -> list[Episode]:
    env = make_env(name)
    player = Player("shared", ScriptedSampler(env, player), ByteRenderer(), reads_state=True)
    players = dict.fromkeys(env.roles, player)
    return play_with(env, players, num_tasks, **{"type": "tree", "num_samples": 4, **options})


# --- one problem a group -------------------------------------------------------------------------


def check_one_problem_a_group() -> None:
    for name in LINEAR:
        episodes = roll(Relay(), num_tasks=4, num_samples=4)
        home = {id(turn): (e.task.id, e.seed) for e in episodes for turn in e.turns}
        groups = make_algorithm(name).assign(episodes)
        assert groups
        for group in groups:
            assert len({home[id(t)] for member in group.members for t in member.turns}) == 1, name
    trees = scripted("plan_path-v1")
    home = {id(turn): (e.id, turn.messages) for e in trees for turn in e.turns}
    for group in make_algorithm("at_grpo").assign(trees):
        assert len({home[id(t)] for member in group.members for t in member.turns}) == 1


def mix_problems(patch: pytest.MonkeyPatch) -> None:
    for name in ("grpo", "dr_mas", "magrpo", "at_grpo"):
        patch.setattr(f"pettingllms.algos.{name}.task_key", lambda episode: ("one for all",))


def mix_states(patch: pytest.MonkeyPatch) -> None:
    def siblings(self, episode):
        for turn in episode.turns:
            if turn.links.branch is not None and turn.links.step is not None:
                reward = turn_reward(episode, turn, self.reward)
                assert isinstance(reward, Scored)
                yield (turn.role,), algos_base.Member([turn], reward.value)

    patch.setattr("pettingllms.algos.at_grpo.AtGrpo._siblings", siblings)


# --- every acting role's reward varies over its siblings, in games that pay late too -------------


def spread(trees: list[Episode]) -> dict[str, int]:
    """For each role, the decisions at which its siblings were worth different things."""
    found: dict[str, int] = defaultdict(int)
    for group in make_algorithm("at_grpo").assign(trees):
        role = group.members[0].turns[0].role
        found[role] += len({member.reward for member in group.members}) > 1
    return found


def check_rewards_vary() -> None:
    early = spread(scripted("plan_path-v1"))
    assert early["planner"] > 3
    assert early["checker"] > 3
    late = spread(scripted("tic_tac_toe-v1", continuation="episode"))
    assert late["player_x"] > 3
    assert late["player_o"] > 3


def reward_only_the_first_fork(patch: pytest.MonkeyPatch) -> None:
    """All siblings get what one branch got, as when it is copied before they are stepped."""
    real = tree.make_fork

    async def once(context, episode, at, joint_action, *choice):
        first = (joint_action[0] - (episode.turns[joint_action[0]].links.branch or 0),)
        return await real(context, episode, at, first, "0")

    patch.setattr(tree, "make_fork", once)


def never_play_on(patch: pytest.MonkeyPatch) -> None:
    async def nothing(context, episode, forks, num_steps):
        return None

    patch.setattr(tree, "continue_forks", nothing)


# --- a role that acts second sees what the first said --------------------------------------------


def check_the_second_sees_the_first() -> None:
    for type_ in ("tree", "linear"):
        for episode in scripted("sudoku-v1", "backtracking", num_tasks=3, type=type_):
            first, second, *_ = episode.main_turns()
            said = first.text.removeprefix("<answer>").removesuffix("</answer>")
            digits = "".join(c for c in said if c.isdigit())
            prompt = bytes(second.prompt_ids.tolist()).decode()
            assert digits in "".join(c for c in prompt if c.isdigit())
    for episode in roll(Relay(), num_tasks=3, type="tree"):
        first, second, *_ = episode.main_turns()
        assert f"a:{first.text}" in bytes(second.prompt_ids.tolist()).decode()


def look_only_once(patch: pytest.MonkeyPatch) -> None:
    """Observations are taken at the start of a turn, before anybody spoke."""
    real = RolloutContext.sample_turns
    first: dict[str, object] = {}

    async def stale(self, at, task, num_samples, max_tokens):
        seen = first.setdefault(task.id, at.state)
        at = dataclasses.replace(at, state=seen)
        return await real(self, at, task, num_samples, max_tokens)

    patch.setattr(RolloutContext, "sample_turns", stale)


# --- stepping one fork changes no other ----------------------------------------------------------


class Notebook(Relay):
    """Relay whose states share a notebook when `leaks` is set."""

    leaks = False
    notes: list[str] = []

    def step(self, state, replies):
        result = super().step(state, replies)
        if not self.leaks:
            return result
        self.notes.extend(replies.values())
        noise = Scored(float(len(self.notes)))
        rewards = dataclasses.replace(result.rewards, process=dict.fromkeys(replies, noise))
        return StepResult(result.state, rewards)


def check_forks_do_not_touch() -> None:
    env = Notebook()
    kept = {"num_tasks": 2, "keep_continuations": True}
    grown = roll(env, by_chance, type="tree", continuation="episode", **kept)
    for episode in grown + roll(env, by_chance, type="replay", **kept):
        for turn in episode.turns:
            state = env.reset(episode.task, episode.seed)
            for at in list(episode.path(turn.links.last))[::-1]:
                step = episode.steps[at]
                turns = [episode.turns[index] for index in step.turns]
                result = env.step(state, {t.role: t.text for t in turns})
                assert result.rewards == step.rewards
                state = result.state


def share_a_notebook(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Notebook, "leaks", True)


# --- a failed call is never trained on and is in no baseline -------------------------------------


def sometimes(request, number):
    text = by_chance(request, number)
    return Failed("engine restarted", "sampler") if text in "012" else text


def check_failures_are_not_trained_on() -> None:
    for name in [*LINEAR, "at_grpo", "reinforce_pp", "rae", "counterfactual", "remove_role"]:
        options = {"type": ALGORITHMS.load(name).rollout_type()}
        if name == "remove_role":
            options["replay"] = "silent"
        episodes = roll(Relay(), sometimes, num_tasks=8, num_samples=6, **options)
        failed = [turn for e in episodes for turn in e.turns if turn.credit.failure is not None]
        assert failed, "the sampler must fail now and then"
        groups = make_algorithm(name).assign(episodes)
        grouped = {id(t) for g in groups for member in g.members for t in member.turns}
        assert grouped, name
        assert not grouped & {id(turn) for turn in failed}, name
        assert all(turn.credit.advantage is None for turn in failed), name


def reward_failures_with_zero(patch: pytest.MonkeyPatch) -> None:
    def zero_reward(episode, *_):
        return Scored(0.0)

    patch.setattr("pettingllms.algos.reinforce_pp.turn_reward", zero_reward)
    patch.setattr(
        "pettingllms.algos.at_grpo.sibling_rewards", lambda e, turns, m: [*map(zero_reward, turns)]
    )
    patch.setattr("pettingllms.algos.base.role_reward", zero_reward)
    patch.setattr("pettingllms.algos.magrpo.team_reward", zero_reward)
    patch.setattr(algos_base.Algorithm, "learns", lambda self, turn: True)


# --- a wrong name is an error at start-up --------------------------------------------------------


def check_wrong_names_stop_the_run() -> None:
    good = {"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}}
    policies = {"policies": {"p": {"kind": "full", "model": "m"}}}
    assert parse_config({**good, **policies})
    for section, key, name in [("env", "id", "tictactoe-v1"), ("algo", "type", "gpro")]:
        with pytest.raises(ConfigError) as caught:
            parse_config({**good, **policies, section: {key: name}})
        assert name in str(caught.value)
        assert "did you mean" in str(caught.value)
    for registry in (ENVIRONMENTS, ALGORITHMS):
        with pytest.raises(UnknownNameError):
            registry.load("no_such_name")


def fall_back_silently(patch: pytest.MonkeyPatch) -> None:
    real = Registry.load

    def load(self, name):
        try:
            return real(self, name)
        except UnknownNameError:
            return real(self, self.names()[0])

    patch.setattr(Registry, "load", load)


# --- every configuration file that ships loads and rolls out ----------------------------------


CONFIGS = Path(__file__).parents[2] / "configs"


def check_shipped_configurations_roll_out() -> None:
    paths = sorted(CONFIGS.glob("*.toml"))
    assert paths
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            try:
                summary = collect(load_config(path, ["rollout.num_tasks=2"]), Path(folder))
            except ConfigError as error:
                raise AssertionError(path.name) from error
            assert summary.failure_share == 0
            assert summary.num_trained_turns > 0


def ship_a_broken_one(patch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp())
    text = (CONFIGS / "sudoku_team.toml").read_text()
    (folder / "broken.toml").write_text(text.replace("size = 4", "sizes = 4"))
    patch.setitem(globals(), "CONFIGS", folder)


def ship_one_that_learns_nothing(patch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp())
    text = (CONFIGS / "tic_tac_toe_solo.toml").read_text()
    (folder / "useless.toml").write_text(text.replace('"grpo"', '"magrpo"'))
    patch.setitem(globals(), "CONFIGS", folder)


CLAIMS: dict[Callable[[], None], list[Break]] = {
    check_one_problem_a_group: [mix_problems, mix_states],
    check_rewards_vary: [reward_only_the_first_fork, never_play_on],
    check_the_second_sees_the_first: [look_only_once],
    check_forks_do_not_touch: [share_a_notebook],
    check_failures_are_not_trained_on: [reward_failures_with_zero],
    check_wrong_names_stop_the_run: [fall_back_silently],
    check_shipped_configurations_roll_out: [ship_a_broken_one, ship_one_that_learns_nothing],
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_claim_holds(claim: Callable[[], None]) -> None:
    claim()


@pytest.mark.parametrize(
    ("claim", "defect"),
    [(claim, defect) for claim, defects in CLAIMS.items() for defect in defects],
    ids=lambda function: function.__name__,
)
def test_the_claim_fails_with_the_old_defect(
    claim: Callable[[], None], defect: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        claim()
