"""A sampled turn is frozen; its credit and its links are not."""

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest
from plays import linear, rewards, turn

from pettingllms.types import Credit, TreeLinks, Turn, episode_to_json


@pytest.mark.parametrize("name", [field.name for field in fields(Turn)])
def test_turn_rejects_assignment_to_any_sampled_field(name: str) -> None:
    one = turn("a")
    with pytest.raises(FrozenInstanceError):
        setattr(one, name, getattr(one, name))


def test_turn_credit_and_links_can_be_written_and_are_not_shared() -> None:
    one, other = turn("a"), turn("a")
    one.credit.advantage, one.links.step = 1.5, 3
    assert (other.credit.advantage, other.links.step) == (None, None)


def test_turn_survives_pickling_with_credit_and_links() -> None:
    one = turn("a", advantage=0.5, step=1, last=2, branch=0)
    back = pickle.loads(pickle.dumps(one))  # noqa: S301 - made here
    assert (back.role, back.response_ids.tolist()) == ("a", [1, 2])
    assert (back.credit.advantage, back.links.step, back.links.last) == (0.5, 1, 2)
    assert isinstance(back.credit, Credit)
    assert isinstance(back.links, TreeLinks)
    back.credit.advantage = -0.5


def test_turn_json_keeps_flat_field_names() -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    episode.turns[0].credit.counterfactual_value = 0.25
    data = episode_to_json(episode)["turns"][0]
    assert {"step", "last", "branch", "failure", "advantage", "mixed"} <= set(data)
    assert not {"credit", "links"} & set(data)
