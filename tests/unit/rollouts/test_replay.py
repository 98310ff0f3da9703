import random
from typing import Any

import pytest
from choir import WORDS, Choir, play_line, sing
from toys import AnsweringSampler, Relay, by_chance, play_with, roll

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import check_env, make_env
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, Failed, Turn, episode_line, episode_to_json

KINDS = ["resampled", "silent"]


def replay(
    env: Any = None, answer: Any = sing, kind: str = "resampled", **options: Any
) -> list[Episode]:
    options = {"num_tasks": 4, "num_samples": 2, "keep_continuations": True, **options}
    return roll(env or Choir(), answer, type="replay", replay=kind, **options)


def added(episode: Episode) -> list[Turn]:
    """The turns that replays added."""
    main_branch = {id(turn) for turn in episode.main_turns()}
    return [turn for turn in episode.turns if id(turn) not in main_branch]


def alternatives(episode: Episode) -> list[Turn]:
    """The other replies that replaced turns of the main branch."""
    return [turn for turn in added(episode) if turn.links.branch is not None]


def replayed(episode: Episode, turn: Turn) -> list[tuple[int, ...]]:
    """The turns that entered each step of the line that judged this one, oldest first."""
    assert turn.links.last is not None
    return [episode.steps[at].turns for at in episode.path(turn.links.last)][::-1]


def test_the_choir_keeps_the_contract() -> None:
    check_env(Choir())


@pytest.mark.parametrize("kind", KINDS)
def test_the_main_branch_is_what_a_linear_rollout_plays(kind: str) -> None:
    for env, answer in ((Choir(), sing), (Relay(), by_chance)):
        plain = roll(env, answer, num_tasks=4, num_samples=3)
        for one, two in zip(plain, replay(env, answer, kind, num_samples=3), strict=True):
            before, after = episode_to_json(one), episode_to_json(two)
            assert len(after["turns"]) > len(before["turns"])
            after["turns"] = after["turns"][: len(before["turns"])]
            after["steps"] = after["steps"][: len(before["steps"])]
            for turn in after["turns"]:
                turn["branch"] = None
            after |= {"num_extra_tokens": 0, "without": {}}
            assert after == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_replays_at_any_concurrency(kind: str) -> None:
    wide, narrow = (replay(kind=kind, max_concurrent=number) for number in (1000, 1))
    assert [*map(episode_line, wide)] == [*map(episode_line, narrow)]
    assert [*map(episode_line, wide)] != [*map(episode_line, replay(kind=kind, seed=1))]


def test_every_turn_gets_other_replies_to_the_same_prompt() -> None:
    texts = set()
    for episode in replay(num_replays=6):
        main_branch = episode.main_turns()
        assert [turn.links.branch for turn in main_branch] == [0] * 5
        assert len(alternatives(episode)) == 6 * 5
        for turn in main_branch:
            others = [
                other
                for other in alternatives(episode)
                if other.role == turn.role and other.messages == turn.messages
            ]
            assert [other.links.branch for other in others] == [1, 2, 3, 4, 5, 6]
            texts |= {other.text for other in others}
            for other in others:
                assert (other.prompt_ids == turn.prompt_ids).all()
                assert other.logprobs is not None
                assert other.links.step not in episode.main_branch()
                assert (
                    episode.steps[other.links.step].parent == episode.steps[turn.links.step].parent
                )
    assert texts == set(WORDS)


def test_earlier_and_simultaneous_replies_stay_and_every_later_turn_is_sampled_again() -> None:
    sampler = AnsweringSampler(sing)
    players = {role: Player(role, sampler, ByteRenderer()) for role in Choir().roles}
    options = {"type": "replay", "num_replays": 3, "keep_continuations": True}
    (episode,) = play_with(Choir(), players, num_tasks=1, num_samples=1, **options)
    # a and b: three replies, and three times c, idler and a again; c and idler: a again
    assert len(sampler.requests) == 5 + 2 * (1 + 3 * 3) + 2 * (1 + 3) + 1
    assert len({request.seed for request in sampler.requests}) == len(sampler.requests)
    main_branch = [episode.steps[at].turns for at in episode.main_branch()]
    for other in alternatives(episode):
        index = episode.turns.index(other)
        (original,) = [
            turn
            for turn in episode.main_turns()
            if turn.role == other.role and turn.messages == other.messages
        ]
        place = episode.turns.index(original)
        changed = next(at for at, joint_action in enumerate(main_branch) if place in joint_action)
        line = replayed(episode, other)
        assert len(line) == len(main_branch)
        assert line[:changed] == main_branch[:changed]
        assert line[changed] == tuple(index if i == place else i for i in main_branch[changed])
        later = [i for joint_action in line[changed + 1 :] for i in joint_action]
        assert all(i >= 5 for i in later), "no recorded reply may answer a changed one"
        assert all(episode.turns[i].links.branch is None for i in later)


def test_teammates_hear_the_changed_reply() -> None:
    (episode,) = replay(num_tasks=1, num_samples=1, num_replays=20)
    for other in alternatives(episode):
        heard = [t for t in added(episode) if t.role == "c" and t.links.branch is None]
        if other.role == "b":
            assert any(f"'{other.text}'" in turn.messages[0].text for turn in heard)


def test_turns_of_continuations_are_dropped_unless_asked_for() -> None:
    for kind in KINDS:
        (full,) = replay(kind=kind, num_tasks=1, num_samples=1)
        (lean,) = replay(kind=kind, num_tasks=1, num_samples=1, keep_continuations=False)
        assert len(lean.turns) < len(full.turns)
        assert len(lean.steps) == len(full.steps)
        assert lean.num_extra_tokens == full.num_extra_tokens
        assert [s.rewards for s in lean.steps] == [s.rewards for s in full.steps]


class Encore(Relay):
    """Relay that goes on for one more round for every 9 that was said."""

    def acting(self, state):
        nines = sum(what == "9" for _, what in state.said)
        if len(state.said) >= 2 * (self.num_rounds + nines):
            return ()
        return (self.roles[len(state.said) % 2],)


def nine_for_another(request, number):
    """The first reply to any prompt is a 1; of the others the second is a 9."""
    return "19"[number == 1] if request.num_samples > 1 else "1"


def test_a_role_that_does_not_learn_is_not_asked_for_others_and_not_removed() -> None:
    sampler = AnsweringSampler(sing)
    env = Choir()
    for kind in KINDS:
        players = {r: Player(r, sampler, ByteRenderer(), trained=r == "c") for r in env.roles}
        (episode,) = play_with(env, players, 1, num_samples=1, type="replay", replay=kind)
        assert {turn.role for turn in added(episode)} == {"c"}, "continuations are not kept"
        assert list(episode.without) == (["c"] if kind == "silent" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_replays_do_not_touch_each_other(kind: str) -> None:
    """Every line of the record, played alone, has the same rewards."""
    for env, answer in ((Choir(), sing), (Relay(), by_chance), (Encore(), by_chance)):
        for episode in replay(env, answer, kind):
            for turn in episode.turns:
                assert turn.credit.failure is None
                play_line(env, episode, turn.links.last)


# --- silence -------------------------------------------------------------------------------------


def test_a_removed_role_is_silent_and_all_others_are_sampled_again() -> None:
    first = {"a": 0, "b": 0, "c": 1, "idler": 1}
    for episode in replay(kind="silent"):
        assert set(episode.without) == set(first)
        main_branch = [episode.steps[at].turns for at in episode.main_branch()]
        for role, last in episode.without.items():
            line = [episode.steps[at].turns for at in episode.path(last)][::-1]
            for at, (joint_action, recorded) in enumerate(zip(line, main_branch, strict=True)):
                for index, old in zip(joint_action, recorded, strict=True):
                    said = episode.turns[index]
                    if episode.turns[old].role == role:
                        assert (said.role, said.text, said.num_tokens) == (role, "", 0)
                        assert said.policy_version is None
                    else:
                        assert (index == old) == (at <= first[role])


def test_the_environment_says_what_silence_is() -> None:
    class Hummer(Choir):
        def silence(self, state, role):
            return f"hum {role} {len(state.heard)}"

    (episode,) = replay(Hummer(), kind="silent", num_tasks=1, num_samples=1)
    texts = [turn.text for turn in added(episode) if turn.policy_version is None]
    assert sorted(texts) == ["hum a 0", "hum a 2", "hum b 0", "hum c 1", "hum idler 1"]


@pytest.mark.parametrize("solo", [False, True])
@pytest.mark.parametrize("name", ["tic_tac_toe-v1", "hanabi-v1", "plan_path-v1", "sudoku-v1"])
def test_silence_is_no_blunder_in_the_environments_that_ship(name: str, solo: bool) -> None:
    """It is legal wherever a legal reply can stand for it."""
    env = make_env(name, solo=solo)
    for at, task in enumerate(env.tasks("train")[:10]):
        state, rng = env.reset(task, at), random.Random(at)
        while roles := env.acting(state):
            (role,) = roles
            silence = env.silence(state, role)
            illegal = env.step(state, {role: silence}).metrics["illegal"]
            assert illegal == (silence == "")
            if name in ("tic_tac_toe-v1", "hanabi-v1"):
                assert silence
            state = env.step(state, {role: env.players["random"](env, state, role, rng)}).state


def test_a_silent_checker_accepts_and_a_silent_planner_changes_nothing() -> None:
    env = make_env("plan_path-v1")
    state = env.reset(env.tasks("train")[0], 0)
    assert env.silence(state, "planner") == ""
    unplanned = env.step(state, {"planner": ""}).state
    assert unplanned.plan is None
    assert env.silence(unplanned, "checker") == ""
    planned = env.step(state, {"planner": "<answer>R</answer>"}).state
    accepted = env.step(planned, {"checker": env.silence(planned, "checker")}).state
    assert accepted.over
    assert accepted.plan == planned.plan
    solver = make_env("plan_path-v1", solo=True)
    state = solver.step(solver.reset(solver.tasks("train")[0], 0), {"solver": "<answer>R</answer>"})
    assert solver.silence(state.state, "solver") == "<answer>accept</answer>"


# --- limits and failures -------------------------------------------------------------------------


def long(request, number):
    return sing(request, number) * (1 + request.seed % 7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_cap_holds_exactly(kind: str) -> None:
    free = replay(answer=long, kind=kind, num_tasks=1, num_samples=1)[0]
    for cap in range(1, free.num_extra_tokens + 10, 7):
        sampler = AnsweringSampler(long)
        given = 0
        sample = sampler.sample

        async def count(request, sample=sample):
            nonlocal given
            results = await sample(request)
            given += sum(len(result.ids) for result in results)
            return results

        sampler.sample = count
        players = {
            role: Player(f"policy_{role}", sampler, ByteRenderer()) for role in Choir().roles
        }
        options = {"type": "replay", "replay": kind, "max_extra_tokens": cap}
        (episode,) = play_with(
            Choir(), players, 1, num_samples=1, keep_continuations=True, **options
        )
        main_branch = sum(turn.num_tokens for turn in episode.main_turns())
        assert given == episode.num_tokens == main_branch + episode.num_extra_tokens
        assert episode.num_extra_tokens <= cap
        assert episode.failure is None
        assert all(turn.credit.failure is None for turn in episode.main_turns())


def test_a_cap_that_suffices_changes_nothing() -> None:
    (free,) = replay(num_tasks=1, num_samples=1)
    (same,) = replay(num_tasks=1, num_samples=1, max_extra_tokens=5 * 15)
    assert episode_line(same) == episode_line(free)


def test_early_and_late_turns_lose_alike_when_extra_tokens_run_out() -> None:
    """Used in the order of play, they would leave the last turns without a replay, always."""
    replays = replay(num_tasks=100, num_samples=8, max_extra_tokens=34)
    assert all(episode.num_extra_tokens for episode in replays)
    counts = [0] * 5
    for episode in replays:
        for at, turn in enumerate(episode.main_turns()):
            counts[at] += turn.links.branch == 0
    shares = [count / len(replays) for count in counts]
    assert all(abs(share - 2 / 5) < 0.07 for share in shares), shares


def test_replies_that_the_cap_cut_void_their_decision() -> None:
    (episode,) = replay(
        answer=lambda r, n: "x" if r.num_samples == 1 else "y" * 40,
        num_tasks=1,
        num_samples=1,
        max_extra_tokens=15 + 11,
    )
    assert episode.num_extra_tokens <= 26
    for turn in alternatives(episode):
        assert turn.credit.failure is not None
        assert turn.credit.failure.owner == "limit"
        assert "max_extra_tokens" in turn.credit.failure.reason
        assert turn.links.step is None


def test_a_role_is_not_removed_once_the_cap_is_reached() -> None:
    class Endless(Encore):
        def silence(self, state, role):
            return "9"

    (episode,) = replay(
        Endless(), lambda r, n: "1", "silent", num_tasks=1, num_samples=1, max_extra_tokens=5
    )
    assert episode.num_extra_tokens == 5
    (end,) = episode.without.values()
    assert end.owner == "limit"
    assert "max_extra_tokens" in end.reason
    assert all(turn.credit.failure is None for turn in episode.main_turns())


def test_a_replay_over_the_step_limit_voids_its_decision_alone() -> None:
    (episode,) = replay(
        Encore(), nine_for_another, num_tasks=1, num_samples=1, max_steps=5, on_limit="exclude"
    )
    others = alternatives(episode)
    assert len(others) == 4 * 3
    assert all(
        turn.credit.failure == Failed("cut after 5 steps (rollout.max_steps)", "limit")
        for turn in others
    )
    assert all(turn.credit.failure is None for turn in episode.main_turns())


class Fragile(Relay):
    """Breaks at a reply of 9, or where a role is silent."""

    def step(self, state, replies):
        if {"9", ""} & set(replies.values()):
            raise RuntimeError("the board caught fire")
        return super().step(state, replies)


def test_a_replay_that_breaks_fails_alone() -> None:
    (episode,) = replay(Fragile(), nine_for_another, num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert len(alternatives(episode)) == 4 * 3
    for turn in alternatives(episode):
        assert (turn.credit.failure is not None) == (turn.text == "9")
        if turn.credit.failure is not None:
            assert turn.credit.failure.owner == "environment"
            assert "caught fire" in turn.credit.failure.reason


def test_a_play_without_a_role_that_breaks_says_why() -> None:
    (episode,) = replay(Fragile(), lambda r, n: "1", "silent", num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert set(episode.without) == {"a", "b"}
    for end in episode.without.values():
        assert isinstance(end, Failed)
        assert end.owner == "environment"
    assert all(turn.credit.failure is not None for turn in added(episode))
    assert all(turn.credit.failure is None for turn in episode.main_turns())


@pytest.mark.parametrize("wrong", [None, RuntimeError("lost its voice")])
def test_silence_that_is_no_reply_fails_the_removal_alone(wrong: Any) -> None:
    class Hoarse(Relay):
        def silence(self, state, role):
            if isinstance(wrong, Exception):
                raise wrong
            return wrong

    (episode,) = replay(Hoarse(), by_chance, "silent", num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert all(isinstance(end, Failed) for end in episode.without.values())
    assert "silence" in episode.without["a"].reason


def test_a_sampler_that_fails_in_a_replay_fails_that_sibling_alone() -> None:
    def sometimes(request, number):
        return Failed("engine restarted", "sampler") if number == 1 else "1"

    (episode,) = replay(Relay(), sometimes, num_tasks=1, num_samples=1)
    lost = [turn.credit.failure is not None for turn in alternatives(episode)]
    assert lost == [False, True, False] * 4


def test_an_episode_that_failed_is_not_replayed() -> None:
    for kind in KINDS:
        (episode,) = replay(
            Relay(),
            lambda r, n: "9" * 4,
            kind,
            num_tasks=1,
            num_samples=1,
            max_steps=3,
            on_limit="exclude",
        )
        assert episode.failure is not None
        assert len(episode.turns) == 3
        assert episode.num_extra_tokens == 0
        assert not episode.without


def test_scripted_players_can_be_replayed() -> None:
    env = make_env("tic_tac_toe-v1")
    player = Player("p", ScriptedSampler(env, "random"), ByteRenderer(), reads_state=True)
    for kind in KINDS:
        options = {"type": "replay", "replay": kind, "keep_continuations": True}
        for episode in play_with(env, dict.fromkeys(env.roles, player), **options):
            assert all(turn.credit.failure is None for turn in episode.turns)
            for turn in episode.turns:
                play_line(env, episode, turn.links.last)


def test_a_kind_of_replay_that_was_never_resolved_is_refused() -> None:
    with pytest.raises(ValueError, match="rollout.replay is 'auto'; a worker needs"):
        Worker(Relay(), {}, RolloutConfig(type="replay"), RewardConfig())
