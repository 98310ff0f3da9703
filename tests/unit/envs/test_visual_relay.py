import random
from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import parse_config
from pettingllms.envs import check_env, make_env
from pettingllms.envs.puzzles.visual_relay.env import LOOKER, MOVER
from pettingllms.envs.puzzles.visual_relay.image import draw_pieces
from pettingllms.errors import ConfigError
from pettingllms.types import Scored
from pettingllms.vision.images import open_image


def relay(**options: Any) -> Any:
    return make_env("visual_relay-v1", **options)


def share_found(env: Any, player: str, num_tasks: int = 400) -> float:
    rng, found = random.Random(0), 0
    for task in env.tasks("test")[:num_tasks]:
        state = env.reset(task, 0)
        while roles := env.acting(state):
            replies = {role: env.player(player)(env, state, role, rng) for role in roles}
            state = env.step(state, replies).state
        found += env.success(state, env.roles[0])
    return found / num_tasks


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"terse": True},
        {"max_rounds": 3},
        {"blank": True},
        {"side": 6, "num_pieces": 6},
        {"side": 6, "num_pieces": 6, "labels": "cells"},
        {"wanted": "red"},
        {"observation": "text"},
        {"observation": "text", "terse": True},
    ],
    ids=str,
)
def test_the_contract_holds(options: dict[str, Any]) -> None:
    check_env(relay(**options), num_episodes=4)


def test_a_pair_that_talks_finds_the_piece_and_chance_does_not() -> None:
    assert share_found(relay(), "honest") == 1.0
    assert share_found(relay().solo(), "honest") == 1.0
    assert 0.05 < share_found(relay(), "random") < 0.2


def test_a_board_as_text_shows_the_looker_each_piece_and_the_mover_none() -> None:
    env = relay(observation="text", terse=True, num_pieces=6, side=3)
    scene = env.reset(env.tasks("test")[3], 0)
    text = env.observe(scene, LOOKER)[-1].text.split("\n")
    assert text[0] == f"looker {scene.wanted}"
    cells = "".join(text[1:])
    for color, cell in scene.pieces:
        assert cells[cell] == {"black": "k"}.get(color, color[0])
    assert cells.count(".") == 3
    assert not env.image_roles
    mover = env.step(scene, {LOOKER: "A1"}).state
    assert env.observe(mover, MOVER)[-1].text == f"mover {scene.wanted}\nA1"


def test_only_the_picture_shows_where_the_piece_is() -> None:
    """Scenes that differ by their places read alike, for both roles, and look different."""
    env = relay()
    scene = env.reset(env.tasks("train")[0], 0)
    others = [env.redeal(scene, MOVER, random.Random(at)) for at in range(8)]
    texts = {tuple(m.text for m in env.observe(s, LOOKER)) for s in [scene, *others]}
    images = {env.observe(s, LOOKER)[-1].images for s in [scene, *others]}
    assert len(texts) == 1
    assert len(images) == len({s.pieces for s in [scene, *others]}) > 4
    assert {env.observe(s, MOVER)[-1] for s in others} == {env.observe(scene, MOVER)[-1]}


def test_a_board_that_names_each_cell_has_one_token_for_it() -> None:
    """A cell is as wide as a token of the Qwen models, and there is no edge around the board."""
    env = relay(labels="cells")
    scene = env.reset(env.tasks("train")[0], 0)
    (image,) = env.observe(scene, LOOKER)[-1].images
    assert open_image(image).size == (84, 84)
    cells = {
        open_image(draw_pieces(3, (("red", cell),), 28, "cells"))
        .crop((cell % 3 * 28, cell // 3 * 28, cell % 3 * 28 + 28, cell // 3 * 28 + 28))
        .tobytes()
        for cell in range(9)
    }
    assert len(cells) == 9  # each says by itself where it is


def test_one_colour_may_be_wanted_on_every_board() -> None:
    env = relay(wanted="purple", num_pieces=2)
    scenes = [env.reset(task, 0) for task in env.tasks("train")[:50]]
    for scene in scenes:
        assert scene.wanted == "purple"
        assert len(dict(scene.pieces)) == len({cell for _, cell in scene.pieces}) == 2
    assert len({dict(scene.pieces)["purple"] for scene in scenes}) == 9
    assert share_found(env, "honest", 50) == 1.0


@pytest.mark.parametrize("labels", ["edge", "cells"])
def test_blanked_every_board_of_one_size_looks_the_same(labels: str) -> None:
    env = relay(blank=True, labels=labels)
    scenes = [env.reset(task, 0) for task in env.tasks("train")[:20]]
    assert len({env.observe(scene, LOOKER)[-1].images for scene in scenes}) == 1


def test_a_wrong_cell_is_told_to_both_and_the_last_round_ends_it() -> None:
    env = relay(max_rounds=2)
    state = env.reset(env.tasks("train")[0], 0)
    wrong = next(
        name
        for name in ("A1", "B2")
        if env._moved(state, name).taken != dict(state.pieces)[state.wanted]
    )
    state = env.step(state, {LOOKER: "<answer>over there</answer>"}).state
    assert "The looker says: over there" in env.observe(state, MOVER)[-1].content
    state = env.step(state, {MOVER: f"<answer>{wrong}</answer>"}).state
    assert f"{wrong} was taken" in env.observe(state, LOOKER)[-1].content
    state = env.step(state, {LOOKER: "<answer>no, elsewhere</answer>"}).state
    assert f"{wrong} was taken" in env.observe(state, MOVER)[-1].content
    result = env.step(state, {MOVER: "<answer>Z9</answer>"})
    assert env.acting(result.state) == ()
    assert result.rewards.team == Scored(0.0)
    assert result.rewards.process == {MOVER: Scored(-0.1)}


def test_no_board_is_in_both_splits() -> None:
    env = relay(side=2, num_pieces=1)
    train, test = (
        {env.reset(task, 0) for task in env.tasks(split)[:300]} for split in ("train", "test")
    )
    assert not train & test


def test_only_the_looker_must_see(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    model = {"kind": "full", "model": str(tmp_path)}
    script = {"kind": "scripted", "player": "honest"}
    base = {
        "env": {"id": "visual_relay-v1"},
        "algo": {"type": "grpo"},
        "policies": {"p": model, "s": script},
    }
    parse_config({**base, "roles": {"looker": "s", "mover": "p"}})
    with pytest.raises(ConfigError, match="shows images to 'looker'.*is text-only"):
        parse_config({**base, "roles": {"looker": "p", "mover": "s"}})
