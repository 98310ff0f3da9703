import random
from collections import defaultdict
from dataclasses import replace

import pytest
from toys import AnsweringSampler, Duel, Relay, by_chance, play_with, roll

from pettingllms.algos import make_algorithm
from pettingllms.algos.credit import turn_reward
from pettingllms.config import RewardConfig
from pettingllms.envs import StepResult, make_env
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, Failed, Rewards, Scored, Turn, episode_line

MIX = RewardConfig()


def grow(env=None, answer=by_chance, **options) -> Episode:
    options = {"num_tasks": 1, "num_samples": 4, **options}
    return roll(env or Relay(), answer, type="tree", **options)[0]


def decisions(episode: Episode) -> dict[tuple[int | None, str], list[Turn]]:
    """Siblings by the step that they were played from, and role."""
    found = defaultdict(list)
    for turn in episode.turns:
        if turn.links.branch is not None and turn.links.step is not None:
            found[episode.steps[turn.links.step].parent, turn.role].append(turn)
    return found


def worth(episode: Episode, turn: Turn) -> float:
    reward = turn_reward(episode, turn, MIX)
    assert isinstance(reward, Scored)
    return reward.value


def test_every_decision_has_k_siblings_from_one_state_each_in_a_separate_fork() -> None:
    episode = grow()
    groups = decisions(episode)
    assert len(groups) == 4
    for siblings in groups.values():
        assert [turn.links.branch for turn in siblings] == [0, 1, 2, 3]
        assert len({turn.messages for turn in siblings}) == 1
        assert len({turn.links.step for turn in siblings}) == 4
        for turn in siblings:
            assert turn.links.step is not None
            reward = episode.steps[turn.links.step].rewards.process[turn.role]
            assert reward == Scored(float(turn.text))


def test_the_best_branch_goes_on_and_the_rest_are_kept() -> None:
    episode = grow(select="best")
    main_branch = episode.main_branch()
    assert len(main_branch) == 4
    for (parent, _), siblings in decisions(episode).items():
        (chosen,) = [turn for turn in siblings if turn.links.step in main_branch]
        assert worth(episode, chosen) == max(worth(episode, turn) for turn in siblings)
        assert parent is None or parent in main_branch


def test_a_sampled_branch_need_not_be_the_best() -> None:
    picks = set()
    for seed in range(8):
        episode = grow(select="sampled", seed=seed)
        main_branch = episode.main_branch()
        picks |= {turn.links.branch for turn in episode.turns if turn.links.step in main_branch}
    assert len(picks) > 1


def test_the_second_role_sees_the_reply_that_went_on() -> None:
    episode = grow()
    first, second, *_ = episode.main_turns()
    assert f"a:{first.text}" in second.messages[0].content


def test_siblings_of_roles_that_act_together_share_everything_but_their_own_reply() -> None:
    episode = grow(Duel())
    for turn in (t for t in episode.turns if t.role == "a"):
        assert turn.links.step is not None
        rivals = [episode.turns[i] for i in episode.steps[turn.links.step].turns]
        (rival,) = [r for r in rivals if r.role == "b"]
        assert rival.links.branch == 0
        assert worth(episode, turn) == float(turn.text) - float(rival.text)
    chosen = episode.main_turns()
    assert {turn.role for turn in chosen} == {"a", "b"}
    for role in ("a", "b"):
        best = max(float(t.text) for t in episode.turns if t.role == role)
        assert float(next(t for t in chosen if t.role == role).text) == best


def test_a_team_reward_reaches_siblings_only_through_continuations() -> None:
    alone = grow(continuation="none")
    first = alone.turns[0]
    assert worth(alone, first) == float(first.text)
    played = grow(continuation="episode")
    for siblings in decisions(played).values():
        for turn in siblings:
            line = played.reward_steps(turn)
            assert line[-1].rewards.team is not None
            team = line[-1].rewards.team
            assert isinstance(team, Scored)
            assert worth(played, turn) == float(turn.text) + team.value


def test_continuations_are_counted_and_never_compared() -> None:
    episode = grow(continuation="episode", keep_continuations=True)
    extra = [turn for turn in episode.turns if turn.links.branch is None]
    assert episode.num_extra_tokens == sum(turn.num_tokens for turn in extra) > 0
    groups = make_algorithm("at_grpo").assign([episode])
    assert all(turn.credit.advantage is None for turn in extra)
    assert {len(group.members) for group in groups} == {4}


def test_extra_tokens_are_capped() -> None:
    free = grow(continuation="episode")
    capped = grow(continuation="episode", max_extra_tokens=10)
    assert capped.num_extra_tokens <= 10 < free.num_extra_tokens
    assert capped.failure is not None
    assert capped.failure.owner == "limit"
    cut = [turn for turn in capped.turns if turn.credit.failure is not None]
    assert cut
    assert all(turn.credit.failure.owner == "limit" for turn in cut if turn.credit.failure)


def test_every_fork_replays_to_what_was_recorded() -> None:
    """Stepping one fork changed no other: each line, replayed alone, has the same rewards."""
    env = make_env("tic_tac_toe-v1")
    for episode in tic_tac_toe_trees(env, num_tasks=3):
        for turn in episode.turns:
            if turn.links.last is None or turn.credit.failure is not None:
                continue
            state = env.reset(episode.task, episode.seed)
            for at in list(episode.path(turn.links.last))[::-1]:
                step = episode.steps[at]
                replies = {episode.turns[i].role: episode.turns[i].text for i in step.turns}
                result = env.step(state, replies)
                assert result.rewards == step.rewards
                state = result.state


def test_late_rewards_tell_siblings_of_both_roles_apart() -> None:
    env = make_env("tic_tac_toe-v1")
    trees = tic_tac_toe_trees(env, num_tasks=10)
    spread = defaultdict(int)
    for tree in trees:
        for (_, role), siblings in decisions(tree).items():
            spread[role] += len({worth(tree, turn) for turn in siblings}) > 1
    assert spread["player_x"] > 10
    assert spread["player_o"] > 10


def test_a_role_that_does_not_learn_answers_once() -> None:
    learner, rival = AnsweringSampler(by_chance), AnsweringSampler(by_chance)
    players = {
        "a": Player("learner", learner, ByteRenderer()),
        "b": Player("rival", rival, ByteRenderer(), trained=False),
    }
    episode = play_with(Relay(), players, num_tasks=1, type="tree", num_samples=5)[0]
    assert {request.num_samples for request in learner.requests} == {5}
    assert {request.num_samples for request in rival.requests} == {1}
    assert all(turn.links.branch is None for turn in episode.turns if turn.role == "b")
    groups = make_algorithm("at_grpo").assign([episode])
    assert {turn.role for g in groups for m in g.members for turn in m.turns} == {"a"}


def test_a_failed_sibling_is_left_out_and_the_others_go_on() -> None:
    def answer(request, number):
        return Failed("lost", "sampler") if number == 1 else by_chance(request, number)

    episode = grow(answer=answer)
    assert episode.failure is None
    groups = make_algorithm("at_grpo").assign([episode])
    assert {len(group.members) for group in groups} == {3}
    assert all(t.credit.advantage is None for t in episode.turns if t.links.branch == 1)


def test_the_reference_reply_is_the_first_that_did_not_fail() -> None:
    def answer(request, number):
        return Failed("lost", "sampler") if number == 0 else by_chance(request, number)

    episode = grow(Duel(), answer)
    assert episode.failure is None
    partners = {
        other.links.branch
        for turn in episode.turns
        if turn.links.step is not None and turn.role == "a"
        for index in episode.steps[turn.links.step].turns
        if (other := episode.turns[index]).role == "b"
    }
    assert partners == {1}


def test_a_decision_without_any_reply_ends_the_episode() -> None:
    episode = grow(answer=lambda request, number: Failed("engine is gone", "sampler"))
    assert episode.failure == Failed("engine is gone", "sampler")
    assert make_algorithm("at_grpo").assign([episode]) == []


def test_the_same_seed_grows_the_same_tree_at_any_concurrency() -> None:
    wide = roll(Relay(), type="tree", num_tasks=4, continuation="episode")
    narrow = roll(Relay(), type="tree", num_tasks=4, continuation="episode", max_concurrent=1)
    assert [*map(episode_line, wide)] == [*map(episode_line, narrow)]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_tree_over_the_turn_limit_keeps_what_was_judged(limit: int) -> None:
    episode = grow(max_steps=limit)
    assert episode.limit == f"cut after {limit} steps (rollout.max_steps)"
    assert len(episode.main_branch()) == limit + 1, "the steps, and the cut"
    assert len(make_algorithm("at_grpo").assign([episode])) == limit


def tic_tac_toe_trees(env, num_tasks: int) -> list[Episode]:
    sampler = ScriptedSampler(env, "random")
    player = Player("shared", sampler, ByteRenderer(), reads_state=True)
    players = dict.fromkeys(env.roles, player)
    options = {"type": "tree", "num_samples": 4, "continuation": "episode"}
    return play_with(env, players, num_tasks, keep_continuations=True, **options)


def test_what_was_said_in_continuations_is_dropped_unless_asked_for() -> None:
    lean = grow(continuation="episode")
    full = grow(continuation="episode", keep_continuations=True)
    assert all(turn.links.branch is not None for turn in lean.turns)
    assert len(full.turns) > len(lean.turns)
    assert lean.num_extra_tokens == full.num_extra_tokens
    credit = [
        [m.reward for g in make_algorithm("at_grpo").assign([e]) for m in g.members]
        for e in (lean, full)
    ]
    assert credit[0] == credit[1]


def test_the_cap_on_extra_tokens_holds_however_long_replies_are() -> None:
    for cap in (10, 100, 1000):
        episode = grow(answer=lambda r, n: "7" * 500, continuation="episode", max_extra_tokens=cap)
        assert episode.num_extra_tokens <= cap
    duel = grow(Duel(), continuation="episode", max_extra_tokens=5)
    assert duel.num_extra_tokens == 0, "its forks are over at once"
    assert all(turn.credit.failure is None for turn in duel.turns)


def test_a_cut_sibling_voids_its_decision_and_does_not_choose_the_branch() -> None:
    """With too few tokens the plays that end soon, such as forfeits, are the only ones judged."""
    env = make_env("tic_tac_toe-v1")

    def answer(request, number):
        prompt = bytes(request.prompt_ids.tolist()).decode()
        free = [c for c in prompt.split("<user>")[1] if c.isdigit()]
        legal = f"<answer>{random.Random(request.seed + number).choice(free)}</answer>"
        return "nonsense" if number == 0 and request.num_samples > 1 else legal

    for seed in range(10):
        episode = roll(
            env,
            answer,
            num_tasks=1,
            num_samples=4,
            type="tree",
            continuation="episode",
            max_extra_tokens=300,
            seed=seed,
        )[0]
        groups = make_algorithm("at_grpo").assign([episode])
        assert {len(group.members) for group in groups} <= {4}
        cut = [t for t in episode.turns if t.credit.failure and t.credit.failure.owner == "limit"]
        assert cut


def test_siblings_and_continuations_are_sampled_with_distinct_seeds() -> None:
    sampler = AnsweringSampler(by_chance)
    players = {role: Player(role, sampler, ByteRenderer()) for role in ("a", "b")}
    play_with(Relay(), players, num_tasks=2, type="tree", continuation="episode")
    assert len({request.seed for request in sampler.requests}) == len(sampler.requests)


def test_the_main_branch_is_cut_by_its_own_tokens_and_continuations_by_steps() -> None:
    episode = grow(max_episode_tokens=2)
    assert "max_episode_tokens" in episode.limit
    assert len(episode.main_branch()) == 3
    short = grow(continuation="episode", max_steps=3)
    assert all(short.steps[turn.links.last].limit for turn in short.turns)
    excluded = grow(continuation="episode", max_steps=3, on_limit="exclude")
    assert all(
        turn.credit.failure and turn.credit.failure.owner == "limit" for turn in excluded.turns
    )


def test_a_decision_of_a_role_that_does_not_learn_has_no_continuations() -> None:
    learner, rival = AnsweringSampler(by_chance), AnsweringSampler(by_chance)
    players = {
        "a": Player("learner", learner, ByteRenderer(), trained=False),
        "b": Player("rival", rival, ByteRenderer(), trained=False),
    }
    (episode,) = play_with(Relay(), players, num_tasks=1, type="tree", continuation="episode")
    assert episode.num_extra_tokens == 0
    assert len(episode.steps) == 4


def test_a_role_that_cannot_reply_fails_the_siblings_of_the_other() -> None:
    def answer(request, number):
        return Failed("lost", "sampler") if request.role == "b" else by_chance(request, number)

    episode = grow(Duel(), answer)
    assert episode.failure == Failed("lost", "sampler")
    assert all(turn.credit.failure for turn in episode.turns)


class Choir(Duel):
    """Eight roles speak at the same time; the reward of each is its digit, of the team the sum."""

    id = "choir-v1"
    roles = tuple(f"voice_{number}" for number in range(8))

    def acting(self, state):
        return () if state.said else self.roles

    def step(self, state, replies):
        digits = {role: Scored(float(reply)) for role, reply in replies.items()}
        team = Scored(sum(float(reply) for reply in replies.values()))
        said = tuple(replies.items())
        return StepResult(replace(state, said=said), Rewards(process=digits, team=team))


@pytest.mark.parametrize("continuation", ["none", "episode"])
def test_eight_roles_over_four_policies(continuation: str) -> None:
    env, sampler = Choir(), AnsweringSampler(by_chance)
    players = {
        role: Player(f"policy_{number % 4}", sampler, ByteRenderer(), trained=number % 4 != 3)
        for number, role in enumerate(env.roles)
    }
    (episode,) = play_with(
        env, players, num_tasks=1, type="tree", num_samples=3, continuation=continuation
    )
    assert len(episode.steps) <= 1 + 6 * 2 + 1, "one fork for each sibling, and one for the chosen"
    groups = make_algorithm("at_grpo").assign([episode])
    assert [len(group.members) for group in groups] == [3] * 6
    assert {turn.policy for g in groups for m in g.members for turn in m.turns} == {
        "policy_0",
        "policy_1",
        "policy_2",
    }
    for role in env.roles:
        heard = [float(turn.text) for turn in episode.turns if turn.role == role]
        (chosen,) = [turn for turn in episode.main_turns() if turn.role == role]
        assert float(chosen.text) == max(heard)


# --- the cap on extra tokens ---------------------------------------------------------------------


def test_early_and_late_decisions_lose_alike_when_extra_tokens_run_out() -> None:
    """Spent in the order of play, they would leave the last decisions out, always."""
    options = {"type": "tree", "continuation": "episode", "select": "sampled", "num_samples": 2}
    episodes = [
        episode
        for seed in range(40)
        for episode in roll(
            Relay(), num_tasks=20, seed=seed, reward=MIX, max_extra_tokens=16, **options
        )
    ]
    counts = [0] * 4
    for episode in episodes:
        assert episode.failure is None
        assert episode.num_extra_tokens <= 16
        for at, turn in enumerate(episode.main_turns()):
            counts[at] += turn.credit.failure is None
    shares = [count / len(episodes) for count in counts]
    assert all(abs(share - 2 / 4) < 0.07 for share in shares), shares


def test_a_best_branch_whose_continuations_exceed_the_cap_is_excluded_as_a_whole() -> None:
    """Its late decisions depend on its early ones, so none of them is trained on."""
    episode = grow(continuation="episode", select="best", max_extra_tokens=22)
    assert episode.failure is not None
    assert "max_extra_tokens" in episode.failure.reason
    assert len(decisions(episode)) > 1
    assert make_algorithm("at_grpo").assign([episode]) == []


# --- siblings that differ in whether they end the episode ----------------------------------------


class Exit(Relay):
    """Relay that a 0 ends at once, with no reward for the team."""

    def acting(self, state):
        return () if any(what == "0" for _, what in state.said) else super().acting(state)


def zero_or_one(request, number):
    """Siblings are 0 and 1; a single reply is 1."""
    return "01"[number % 2] if request.num_samples > 1 else "1"


def test_siblings_that_differ_in_ending_are_played_on_in_any_environment() -> None:
    episode = grow(Exit(), zero_or_one, select="sampled", num_samples=2)
    assert not Exit.late_rewards
    (siblings, *_) = decisions(episode).values()
    zero, one = siblings
    assert episode.steps[zero.links.step].final
    assert not episode.steps[one.links.step].final
    assert zero.links.last == zero.links.step
    assert episode.steps[one.links.last].final
    (group, *_) = make_algorithm("at_grpo").assign([episode])
    assert [member.reward for member in group.members] == [0.0, 1.0 + 4.0]


def test_siblings_that_all_go_on_are_compared_by_their_own_steps() -> None:
    episode = grow(Exit(), lambda r, n: "123"[n % 3], select="sampled")
    assert episode.num_extra_tokens == 0
    for group in make_algorithm("at_grpo").assign([episode])[:3]:
        assert [member.reward for member in group.members] == [1.0, 2.0, 3.0, 1.0]


def test_without_continuations_siblings_that_differ_in_ending_are_not_compared() -> None:
    episode = grow(Exit(), zero_or_one, select="sampled", num_samples=2, continuation="none")
    assert episode.num_extra_tokens == 0
    (siblings, *_) = decisions(episode).values()
    groups = make_algorithm("at_grpo").assign([episode])
    assert not groups
    assert all(turn.credit.advantage is None for turn in siblings)
    assert all(turn.credit.failure is None for turn in siblings)


class Winner(Relay):
    """One round; a role that says 9 gets an agent reward, and no other role gets any."""

    num_rounds = 1

    def step(self, state, replies):
        result = super().step(state, replies)
        won = {role: Scored(1.0) for role, reply in replies.items() if reply == "9"}
        return StepResult(result.state, Rewards(agent=won))


def test_a_sibling_without_reward_counts_as_0_at_the_final_decision_as_at_earlier_ones() -> None:
    def nine_or_one(request, number):
        return "91"[number % 2] if request.num_samples > 1 else "1"

    episode = grow(Winner(), nine_or_one, num_samples=2, continuation="episode", select="sampled")
    groups = make_algorithm("at_grpo").assign([episode])
    assert [[m.reward for m in g.members] for g in groups] == [[1.0, 0.0], [1.0, 0.0]]


# --- the policy's own success --------------------------------------------------------------------


class Guess(Relay):
    """Two rounds, late rewards; a 9 in the first reply decides whether the roles succeed."""

    late_rewards = True

    def success(self, state, role):
        return state.said[0][1] == "9"


def test_success_under_best_of_k_is_measured_on_the_first_siblings() -> None:
    """At four siblings a success of 0.4 looked like 0.87."""

    def two_in_five(request, number):
        return "9" if random.Random(request.seed + number).random() < 0.4 else "1"

    trees = [
        tree
        for seed in range(20)
        for tree in roll(
            Guess(), two_in_five, num_tasks=20, seed=seed, type="tree", num_samples=4, select="best"
        )
    ]
    best = sum(tree.success["a"] for tree in trees) / len(trees)
    assert best > 0.7
    shares = [tree.sampled_success("a") for tree in trees]
    assert all(share is not None for share in shares)
    assert abs(sum(shares) / len(shares) - 0.4) < 0.05
    assert {tree.best_of for tree in trees} == {4}


def test_success_under_best_of_k_without_continuations_is_unknown() -> None:
    for options in ({"continuation": "none"}, {}):
        (tree,) = roll(Relay(), num_tasks=1, type="tree", num_samples=4, select="best", **options)
        assert tree.success == {"a": True, "b": True}
        assert tree.sampled_success("a") is None
    (tree,) = roll(Relay(), num_tasks=1, type="tree", num_samples=4, select="sampled")
    assert tree.sampled_success("a") == 1.0
