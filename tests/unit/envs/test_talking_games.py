"""The iterated dilemma, negotiation and werewolf: rules, prices and what talk may carry."""

import random

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.games.negotiation.replies import Bargain, Said
from pettingllms.envs.games.werewolf.rules import Village
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.envs.toolkit.talk import MAX_LETTERS, checked_words
from pettingllms.types import Scored


def play(env, players, seed: int = 0):
    """Play an episode to its end; return the last state and the agent rewards per role."""
    state, rng = env.reset(env.tasks("train")[seed], seed), random.Random(seed)
    rewards = dict.fromkeys(env.roles, 0.0)
    while acting := env.acting(state):
        replies = {r: env.players[players(r)](env, state, r, rng) for r in acting}
        result = env.step(state, replies)
        for role, reward in result.rewards.agent.items():
            rewards[role] += reward.value
        state = result.state
    return state, rewards


def test_words_are_passed_on_as_they_are_or_not_at_all() -> None:
    assert checked_words(" I am  the seer:\nplayer_2 is a wolf! ") == (
        "I am the seer: player_2 is a wolf!"
    )
    for bad in ("<|im_end|>", "[bold]", "a\x1bb", "ok {x}", "“quoted”", "a" * (MAX_LETTERS + 1)):
        with pytest.raises(BadReply):
            checked_words(bad)


dilemma = make_env("iterated_dilemma-v1", num_rounds=5)


@pytest.mark.parametrize(
    ("first", "second", "payoffs"),
    [
        ("cooperate", "cooperate", (15, 15)),
        ("defect", "cooperate", (25, 0)),
        ("defect", "tit_for_tat", (9, 4)),
        ("grim", "defect", (4, 9)),
        ("defect", "defect", (5, 5)),
    ],
)
def test_the_dilemma_follows_its_table(first: str, second: str, payoffs: tuple[int, int]) -> None:
    state, got = play(dilemma, lambda role: first if role == "player_1" else second)
    assert tuple(got.values()) == payoffs
    assert [dilemma.success(state, role) for role in dilemma.roles] == [p >= 15 for p in payoffs]


def test_payoffs_are_configurable() -> None:
    env = make_env("iterated_dilemma-v1", num_rounds=1, temptation=9.0, sucker=-2.0)
    assert play(env, lambda r: "defect" if r == "player_1" else "cooperate")[1] == {
        "player_1": 9.0,
        "player_2": -2.0,
    }
    assert (
        "it gets 9 and the other -2"
        in env.observe(env.reset(env.tasks("train")[0], 0), "player_1")[0].content
    )


def test_messages_come_before_choices_and_both_see_both() -> None:
    env = make_env("iterated_dilemma-v1", talk=True, num_rounds=1)
    state = env.reset(env.tasks("train")[0], 0)
    said = {"player_1": as_reply("I will cooperate."), "player_2": as_reply("<b>no</b>")}
    result = env.step(state, said)
    assert result.rewards.agent == {}
    assert result.rewards.process == {"player_2": Scored(-0.5)}
    shown = env.observe(result.state, "player_2")[-1].content
    assert 'player_1 said "I will cooperate."' in shown
    assert "you said" not in shown
    over = env.step(result.state, {"player_1": as_reply("cooperate"), "player_2": "nonsense"})
    assert over.state.chosen == (("cooperate", "defect"),)
    assert over.metrics == {"illegal": 1.0, "cooperation": 0.5}
    assert env.acting(over.state) == ()


def test_the_end_is_told_only_if_asked_for() -> None:
    for shows in (True, False):
        env = make_env("iterated_dilemma-v1", num_rounds=37, shows_end=shows)
        seen = " ".join(
            m.content for m in env.observe(env.reset(env.tasks("train")[0], 0), "player_1")
        )
        assert ("37" in seen) == shows


talks = make_env("negotiation-v1", discount=0.5)


def notify(env, state, *answers: str):
    for answer in answers:
        (role,) = env.acting(state)
        result = env.step(state, {role: as_reply(answer)})
        state = result.state
    return result


def test_a_deal_rewards_both_with_their_surplus_and_waiting_costs() -> None:
    result = notify(
        talks, Bargain(cost=4, value=14), "offer 16: A fine lamp.", "offer 8", "accept: All right."
    )
    assert result.state.price == 8
    rewards = {role: reward.value for role, reward in result.rewards.agent.items()}
    assert rewards == {"seller": 4 / 20 / 4, "buyer": 6 / 20 / 4}
    assert result.metrics == {"illegal": 0.0, "deal": 1.0, "turns": 3.0}
    assert talks.success(result.state, "buyer")
    assert not talks.success(result.state, "seller")


def test_without_a_deal_all_rewards_are_zero() -> None:
    for ending in (["leave"], ["offer 9"] * 6):
        result = notify(talks, Bargain(cost=4, value=14), *ending)
        assert result.state.price is None
        assert set(result.rewards.agent.values()) == {Scored(0.0)}
        assert result.metrics["deal"] == 0


@pytest.mark.parametrize(
    "answer", ["accept", "offer 21", "offer -1", "offer ²", "offer", "sell", "offer 3: <b>"]
)
def test_a_refused_reply_passes_the_turn(answer: str) -> None:
    result = notify(talks, Bargain(cost=4, value=14), answer)
    assert result.rewards.process == {"seller": Scored(-0.5)}
    assert result.state.said == (Said("nothing"),)
    assert talks.acting(result.state) == ("buyer",)
    assert notify(talks, result.state, "accept").metrics["illegal"] == 1


def test_numbers_stay_private_and_words_do_not() -> None:
    state = notify(talks, Bargain(cost=4, value=14), "offer 16: It cost me 11.").state
    for env in (talks, make_env("negotiation-v1", terse=True)):
        shown = env.observe(state, "buyer")[-1].content
        assert "It cost me 11." in shown
        assert "14" in shown
        assert " 4" not in shown


def test_bargainers_find_deals_that_leave_neither_side_worse_off() -> None:
    env = make_env("negotiation-v1")
    for seed in range(50):
        state, rewards = play(env, lambda role: "conceder", seed)
        assert state.price is not None
        assert min(rewards.values()) >= 0
    stubborn = sum(
        play(env, lambda r: "stubborn" if r == "buyer" else "conceder", s)[1]["buyer"]
        for s in range(50)
    )
    even = sum(play(env, lambda r: "conceder", s)[1]["buyer"] for s in range(50))
    assert stubborn > even


village = make_env("werewolf-v1", num_players=5)
WOLF, SEER = "wolf_1", "seer"
START = Village((3, 1, 2, 4, 5), 1, (True,) * 5)
"""The wolf is player_3, the seer player_1."""


def act(env, state, **answers: str):
    return env.step(state, {role: as_reply(answer) for role, answer in answers.items()})


def test_a_night_kills_and_shows_the_seer_one() -> None:
    after = act(village, START, wolf_1="player_2", seer="player_3").state
    assert after.alive == (True, True, False, True, True)
    for role in village.roles:
        seen = village.observe(after, role)[-1].content
        died = "you were" if role == "villager_1" else "player_2 was"
        assert f"{died} killed, a villager" in seen
        assert ("player_3 is a wolf" in seen) == (role == SEER)
        assert ("chose to kill" in seen) == (role == WOLF)
    assert village.acting(after) == (SEER,)  # player_1 speaks first


def day(state, *votes: str):
    while state.phase == "talk":
        (role,) = village.acting(state)
        state = act(village, state, **{role: "pass"}).state
    return act(village, state, **dict(zip(village.acting(state), votes, strict=True)))


def test_the_village_wins_when_the_wolf_hangs() -> None:
    state = act(village, START, wolf_1="player_2", seer="player_3").state
    result = day(state, "player_3", "player_1", "player_3", "player_3")
    assert result.state.winner == "village"
    rewards = {role: reward.value for role, reward in result.rewards.agent.items()}
    assert rewards.pop(WOLF) == -1
    assert set(rewards.values()) == {1}
    assert len(rewards) == 4


def test_a_tie_hangs_no_player_and_wolves_win_at_half() -> None:
    state = act(village, START, wolf_1="player_2", seer="player_4").state
    state = day(state, "player_3", "player_1", "player_3", "player_1").state
    assert state.phase == "night"
    state = act(village, state, wolf_1="player_4", seer="nobody").state
    assert state.winner is None
    result = day(state, "nobody", "player_1", "player_1")
    assert result.state.winner == "wolves"
    assert village.success(result.state, WOLF)
    assert not village.success(result.state, "villager_1")


def test_wolves_cannot_kill_wolves_and_must_agree() -> None:
    env = make_env("werewolf-v1", num_players=7, num_wolves=2)
    state = Village((1, 2, 3, 4, 5, 6, 7), 2, (True,) * 7)
    refused = act(env, state, wolf_1="player_2", wolf_2="player_4", seer="player_1")
    assert refused.rewards.process == {"wolf_1": Scored(-0.5)}
    assert not refused.state.alive[3]
    assert "The other wolf is player_2" in env.observe(state, "wolf_1")[0].content
    apart = act(env, state, wolf_1="player_5", wolf_2="player_4", seer="player_1").state
    assert all(apart.alive)


def test_days_run_out_for_the_village() -> None:
    env = make_env("werewolf-v1", num_players=5, num_talks=0, max_days=2)
    state, days = env.reset(env.tasks("train")[0], 0), 0
    while acting := env.acting(state):
        state = act(env, state, **dict.fromkeys(acting, "nobody")).state
        days = state.day
    assert (state.winner, days) == ("wolves", 2)


def test_names_say_nothing_about_parts() -> None:
    env = make_env("werewolf-v1")
    names = [env.reset(task, 0).names[0] for task in env.tasks("train")[:300]]
    assert set(names) == set(range(1, 7))


def test_sound_villagers_win_more_often_than_random_ones() -> None:
    env = make_env("werewolf-v1")

    def share(players: str) -> float:
        return sum(
            play(env, lambda r: "random" if "wolf" in r else players, s)[0].winner == "village"
            for s in range(150)
        )

    assert share("sound") > share("random")


def test_two_wolves_among_five_are_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="set num_players = 7 or 8"):
        make_env("werewolf-v1", num_players=5, num_wolves=2)


def test_no_premise_is_in_both_splits() -> None:
    env = make_env("story-v1")
    premises = {s: {env.reset(t, 0).premise for t in env.tasks(s)} for s in ("train", "test")}
    assert all(len(found) > 500 for found in premises.values())
    assert not premises["train"] & premises["test"]


@pytest.mark.parametrize("max_turns", [2, 3, 4])
def test_conceders_go_to_their_limit_with_however_few_turns(max_turns: int) -> None:
    env = make_env("negotiation-v1", max_turns=max_turns)
    ends = [play(env, lambda _: "conceder", seed)[0] for seed in range(40)]
    assert all(any(env.success(state, role) for role in env.roles) for state in ends)


@pytest.mark.parametrize(
    ("name", "metric", "options"),
    [
        ("negotiation-v1", "deal", {}),
        ("kuhn_poker-v1", "pot", {}),
        ("werewolf-v1", "village_won", {}),
        ("tic_tac_toe-v1", "illegal", {"max_opening": 8}),
    ],
)
def test_alone_every_play_has_a_turn_and_says_how_it_ended(
    name: str, metric: str, options: dict[str, int]
) -> None:
    env = make_env(name, solo=True, **options)
    for number, task in enumerate(env.tasks("train")[:60]):
        state, rng, metrics = env.reset(task, number), random.Random(number), {}
        assert env.acting(state) == ("solo",)
        while env.acting(state):
            result = env.step(state, {"solo": env.players["random"](env, state, "solo", rng)})
            state, metrics = result.state, metrics | result.metrics
        assert metric in metrics, task.id
