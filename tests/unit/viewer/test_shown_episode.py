"""The page's data of an episode: decisions, siblings, side branches and comparison groups."""

from pathlib import Path

import pytest
from plays import LOST, linear, overwrite, removals, rewards, siblings
from toys import Relay, roll
from viewed import config_of, rolled, with_tokens, write_run

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RewardConfig
from pettingllms.types import Episode
from pettingllms.viewer.endpoints import Endpoints
from pettingllms.viewer.episode import branches, decisions, groups_of, shown_episode
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.sources import open_run


def test_siblings_share_a_decision_and_one_is_on_the_main_branch(tmp_path: Path) -> None:
    for episode in rolled(tmp_path, 8):
        shown = shown_episode(episode, RewardConfig(), {})
        assert sorted(n for row in shown["decisions"] for n in row["turns"]) == [
            *range(len(episode.turns))
        ]
        for row in shown["decisions"]:
            turns = [shown["turns"][n] for n in row["turns"]]
            assert len({turn["prompt"] for turn in turns}) == 1, "all answered the same"
            assert sum(turn["on_main_branch"] for turn in turns) == 1


def test_failed_sibling_is_listed_with_the_others() -> None:
    episode = siblings("t", "a", [LOST, 1.0, LOST, 0.5])
    assert [row["turns"] for row in decisions(episode)] == [[0, 1, 2, 3]]
    all_failed = siblings("t", "a", [LOST, LOST])
    assert [row["turns"] for row in decisions(all_failed)] == [[0, 1]]


def test_side_branches_are_listed_separately() -> None:
    episode = removals("t", 0, ("a", "b"), 1.0, {"a": 0.5})
    assert [row["turns"] for row in decisions(episode)] == [[0], [1]]
    assert [(one["role"], one["steps"]) for one in branches(episode)] == [("a", 2)]
    for tree in roll(Relay(), num_tasks=2, type="tree", continuation="episode", num_samples=2):
        shown = {n for row in decisions(tree) for n in row["turns"]}
        assert shown == {n for n, turn in enumerate(tree.turns) if turn.links.branch is not None}
        assert branches(tree)


@pytest.mark.parametrize("algo", ["at_grpo", "grpo", "dr_mas", "reinforce_pp", "magrpo"])
def test_what_is_shown_as_compared_is_what_gave_the_advantage(tmp_path: Path, algo: str) -> None:
    """The shown rewards reproduce the algorithm's advantages."""
    episodes = rolled(tmp_path / "r", 4, f"algo.type={algo}")
    config = config_of(f"algo.type={algo}")
    algorithm = make_algorithm_for(config)
    groups = groups_of(episodes, config, 1)
    compared = 0
    for group in algorithm.groups(episodes):
        for member, advantage in zip(group.members, algorithm.advantages(group), strict=True):
            for turn in member.turns:
                episode = next(e for e in episodes if any(t is turn for t in e.turns))
                shown = groups[(episode.id, [t is turn for t in episode.turns].index(True))]
                assert shown["size"] == len(group.members)
                assert shown["mean"] == pytest.approx(
                    sum(m.reward for m in group.members) / len(group.members)
                )
                assert turn.credit.advantage == pytest.approx(advantage)
                compared += 1
    assert compared == len(groups) > 0


def test_policy_before_its_join_step_has_no_group() -> None:
    config = config_of("policies.checker.join_step=3")
    episodes = [siblings("t", "checker", [0.0, 1.0])]
    for turn in episodes[0].turns:
        overwrite(turn, policy="checker")
    assert groups_of(episodes, config, 2) == {}
    assert len(groups_of(episodes, config, 3)) == 2


def test_every_token_has_a_mismatch_and_a_text_span(tmp_path: Path) -> None:
    episodes = [with_tokens(one) for one in rolled(tmp_path / "r", 2)]
    write_run(tmp_path / "run", episodes, 1)
    index = open_index(open_run(tmp_path / "run"))
    index.update()
    shown = Endpoints([index]).episode(0, 1)
    for number, turn in enumerate(shown["turns"]):
        assert len(turn["mismatch"]) == len(turn["ends"]) == len(turn["text"]) + 1 == turn["tokens"]
        assert turn["mismatch"][0] == pytest.approx(0.001 * (number + 1), rel=1e-3)
    assert any(turn["group"] for turn in shown["turns"])


def test_levels_are_kept_apart_and_failures_keep_their_reason() -> None:
    episode: Episode = linear("t", 0, ("a", rewards({"a": 0.2}, {"a": 0.5}, LOST)))
    (turn,) = shown_episode(episode, RewardConfig(), {})["turns"]
    assert turn["rewards"] == {
        "process": 0.2,
        "agent": 0.5,
        "team": {"failed": "lost", "owner": "sampler"},
    }
    assert turn["reward"] == {"failed": "lost", "owner": "sampler"}
