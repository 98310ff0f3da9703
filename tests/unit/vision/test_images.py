from collections.abc import Sequence

import pytest
from pictures import bad_images, plain
from toys import Relay, Talk, roll

import pettingllms.vision.images
from pettingllms.envs import find_faults
from pettingllms.errors import ImageError, SamplerError
from pettingllms.inference.http import JsonRenderer
from pettingllms.types import Failed, Image, Message, Table, user
from pettingllms.vision.images import check_image, make_image, open_image, text_only

BAD = bad_images()


class Gallery(Relay):
    """Shows a an image that a test chooses; b sees none."""

    id = "gallery-v1"
    late_rewards = True
    image_roles: tuple[str, ...] = ()

    def __init__(self, image: Image, *image_roles: str) -> None:
        super().__init__()
        self.image = image
        self.image_roles = image_roles or ("a",)

    def observe(self, state: Talk, role: str) -> Sequence[Message]:
        (text,) = super().observe(state, role)
        return [user(text.content, self.image)] if role == "a" else [text]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_refused_with_its_reason(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(ImageError, match=reason):
        check_image(Image(data))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_becomes_a_failed_turn_and_the_run_goes_on(name: str) -> None:
    data, reason = BAD[name]
    episodes = roll(Gallery(Image(data)), num_tasks=2, num_samples=1)
    assert len(episodes) == 2
    for episode in episodes:
        (turn,) = episode.turns
        assert isinstance(turn.credit.failure, Failed)
        assert turn.credit.failure.owner == "environment"
        assert reason in turn.credit.failure.reason
        assert turn.messages[-1].images == (Image(data),)


def test_a_good_image_is_played_with() -> None:
    for episode in roll(Gallery(plain()), num_tasks=2):
        assert len(episode.turns) == 4
        assert not any(turn.credit.failure for turn in episode.turns)


def test_pixels_come_back_as_they_were_drawn() -> None:
    picture = open_image(plain("blue", (3, 5)))
    assert picture.size == (3, 5)
    assert picture.getpixel((1, 2)) == (0, 0, 255)
    assert make_image(picture) == make_image(picture.copy())


def test_without_pillow_an_image_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pettingllms.vision.images, "can_decode", lambda: False)
    with pytest.raises(ImageError, match=r"pip install 'pettingllms\[vision\]'"):
        open_image(plain())


def test_a_policy_that_reads_is_never_given_an_image_as_text() -> None:
    with pytest.raises(SamplerError, match="the policy is text-only"):
        JsonRenderer().render([user("look", plain())])
    assert text_only(user("sum", Table(("n",), ((1,),)))) == "| n |\n| --- |\n| 1 |\n\nsum"


def test_an_environment_must_declare_the_roles_that_it_shows_images() -> None:
    assert find_faults(Gallery(plain())) == []
    (fault,) = find_faults(Gallery(plain(), "b"))
    assert fault.name == "undeclared-image"
    (fault,) = find_faults(Gallery(Image(b"no image")))
    assert fault.name == "bad-image"


def test_a_critic_of_the_team_sees_every_image_once() -> None:
    env = Gallery(plain())
    env.observe = lambda state, role: [user(role, plain())]
    assert env.centralized_observation(Talk())[-1].images == (plain(),)
