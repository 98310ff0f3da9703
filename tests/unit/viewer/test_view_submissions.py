"""Submissions, verdicts and images in the page's data."""

import base64

import pytest
from plays import linear, overwrite

from pettingllms.config import RewardConfig
from pettingllms.types import TEAM, Failed, Image, Rewards, Scored, Submission, user
from pettingllms.viewer import episode as images
from pettingllms.viewer.episode import SIGNATURE, shown_episode, shown_images
from pettingllms.viewer.submissions import judged_turn, shown_submissions

PNG = Image(SIGNATURE + b"one")


def test_judged_turn_lists_the_submissions_of_its_role_and_team() -> None:
    episode = linear("t", 0, ("a", Rewards()), ("b", Rewards()))
    last = episode.steps[-1]
    last.submissions = {
        TEAM: Submission("q", "whole"),
        "a": Submission("q", "hers"),
        "b": Submission("q", "his"),
    }
    last.metrics = {"judged": 0.5, "judged_a": 0.25}
    last.rewards = Rewards(
        agent={"a": Scored(0.25), "b": Failed("too late", "judge")}, team=Scored(9.0)
    )
    at = len(episode.steps) - 1
    assert judged_turn(episode, episode.turns[0]) == [f"{at}/", f"{at}/a"]
    assert judged_turn(episode, episode.turns[1]) == [f"{at}/", f"{at}/b"]
    shown = shown_submissions(episode)
    assert shown[f"{at}/"]["verdict"] == 0.5, "the verdict, not the reward"
    assert shown[f"{at}/a"]["verdict"] == 0.25
    assert shown[f"{at}/b"]["verdict"] == {"failed": "too late", "owner": "judge"}
    assert shown[f"{at}/b"]["answer"] == "his"


def test_a_verdict_on_one_reply_rewards_no_earlier_turn() -> None:
    episode = linear("t", 0, ("a", Rewards()), ("a", Rewards()))
    for step in episode.steps:
        step.submissions = {"a": Submission("q", "hers", level="process")}
    episode.steps[0].rewards = Rewards(process={"a": Failed("too late", "judge")})
    first, second = episode.turns
    assert judged_turn(episode, first) == [f"{first.links.step}/a"]
    assert judged_turn(episode, second) == [f"{second.links.step}/a"]
    failed = {"failed": "too late", "owner": "judge"}
    assert shown_submissions(episode)["0/a"]["verdict"] == failed


def test_environment_failure_is_no_verdict() -> None:
    episode = linear("t", 0, ("a", Rewards()))
    episode.steps[-1].submissions = {TEAM: Submission("q", "whole")}
    episode.steps[-1].rewards = Rewards(team=Failed("it broke", "environment"))
    assert shown_submissions(episode)[f"{len(episode.steps) - 1}/"]["verdict"] is None


def test_image_is_embedded_once() -> None:
    episode = linear("t", 0, ("a", Rewards()), ("b", Rewards()))
    for turn in episode.turns:
        overwrite(turn, messages=(user("look", PNG),))
    shown = shown_episode(episode, RewardConfig(), {})
    assert [m["images"] for prompt in shown["prompts"] for m in prompt] == [[PNG.digest]]
    (embedded,) = shown["images"].values()
    head, _, data = embedded["data"].partition(",")
    assert (head, base64.b64decode(data)) == ("data:image/png;base64", PNG.data)


def test_non_png_images_are_not_sent() -> None:
    svg = Image(b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>")
    assert shown_images([svg]) == {svg.digest: {"missing": "not a PNG file"}}


def test_image_bytes_per_episode_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 25)
    first, second, third = (Image(SIGNATURE + text) for text in (b"a" * 9, b"b" * 9, b"c"))
    shown = shown_images([first, second, first, third])
    assert [("data" in shown[one.digest]) for one in (first, second, third)] == [True, False, False]
