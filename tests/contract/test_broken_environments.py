"""`check_env` finds each broken promise and calls it by its name."""

import itertools
import random
import re
import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from pictures import plain
from toys import Relay as Toy
from toys import Talk

from pettingllms.envs import Environment, StepResult, check_env, find_faults
from pettingllms.envs.base import successes
from pettingllms.envs.check_start import check_start
from pettingllms.errors import EnvContractError
from pettingllms.types import Image, Rewards, Scored, Task, user


class Relay(Toy):
    """Sound, unless a subclass breaks it: the team is rewarded at the end, and that is declared."""

    late_rewards = True


class MutatesItsState(Relay):
    """step writes into the state that it was given."""

    def step(self, state, replies):
        result = super().step(state, replies)
        object.__setattr__(state, "said", (*state.said, ("ghost", "0")))
        return result


@dataclass
class OpenTalk:
    said: list = field(default_factory=list)


class MutableState(Relay):
    """The state is a plain dataclass with a list in it."""

    def reset(self, task, seed):
        return OpenTalk()

    def acting(self, state):
        return () if len(state.said) >= 2 else (self.roles[len(state.said)],)

    def observe(self, state, role):
        return [user("speak")]

    def step(self, state, replies):
        rewards = Rewards(process=dict.fromkeys(replies, Scored(0.0)))
        return StepResult(OpenTalk([*state.said, *replies.items()]), rewards)


class SharedBoard:
    """Compares and hashes by value, and is written to by every fork."""

    def __init__(self, said=()):
        self.said = tuple(said)
        self.start = 0

    def __eq__(self, other):
        return self.said == other.said

    def __hash__(self):
        return 1


class ForksShareAState(Relay):
    """Forks of one state are one object."""

    def __init__(self):
        super().__init__()
        self.forks: dict[int, SharedBoard] = {}

    def reset(self, task, seed):
        return SharedBoard()

    def step(self, state, replies):
        board = self.forks.setdefault(id(state), SharedBoard())
        board.said = (*state.said, *replies.items())
        return StepResult(board, Rewards(process=dict.fromkeys(replies, Scored(0.0))))


class RemembersInItself(Relay):
    """What a step does depends on which role the environment observed last."""

    looked_at = ""

    def observe(self, state, role):
        self.looked_at = role
        return super().observe(state, role)

    def step(self, state, replies):
        result = super().step(state, replies)
        return replace(result, state=replace(result.state, start=ord(self.looked_at)))


class ForgetsTheSeed(Relay):
    """reset takes chance from nowhere."""

    def reset(self, task, seed):
        return Talk(start=random.SystemRandom().randrange(10**9))


class ChanceInStep(Relay):
    """step takes chance from nowhere."""

    def step(self, state, replies):
        result = super().step(state, replies)
        noise = random.SystemRandom().randrange(10**9)
        return replace(result, state=replace(result.state, start=noise))


class NeverEnds(Relay):
    """Some role always acts."""

    def acting(self, state):
        return (self.roles[len(state.said) % 2],)


class StrangeRole(Relay):
    """acting names a role that does not exist."""

    def acting(self, state):
        return () if state.said else ("c",)


class RewardsAStranger(Relay):
    """A reward for a role that does not exist."""

    def step(self, state, replies):
        result = super().step(state, replies)
        return replace(result, rewards=Rewards(result.rewards.process, {"zoe": Scored(1.0)}))


class RewardsTheSilent(Relay):
    """A process reward for a role that said nothing."""

    def step(self, state, replies):
        result = super().step(state, replies)
        return replace(result, rewards=Rewards(dict.fromkeys(self.roles, Scored(0.0))))


class NumbersForRewards(Relay):
    """A bare number where a reward must be."""

    def step(self, state, replies):
        result = super().step(state, replies)
        return replace(result, rewards=Rewards(process=dict.fromkeys(replies, 1.0)))


class ActsByAString(Relay):
    """Not a tuple of roles."""

    def acting(self, state):
        return "".join(super().acting(state))


class StepsToAState(Relay):
    """The bare state instead of a result."""

    def step(self, state, replies):
        return super().step(state, replies).state


class WordsForMetrics(Relay):
    """A metric that no curve can show."""

    def step(self, state, replies):
        return replace(super().step(state, replies), metrics={"mood": "good"})


class RewardsAsADict(Relay):
    """A dict instead of Rewards."""

    def step(self, state, replies):
        return replace(super().step(state, replies), rewards={"a": 1.0})


class OneRoleTwice(Relay):
    roles = ("a", "b", "a")


class Unequal:
    """Hashes and pickles, and is equal to nothing but itself."""


class NoEquality(Relay):
    """A state that a copy of it does not equal."""

    def reset(self, task, seed):
        return Talk(start=Unequal())


class Generators(Relay):
    """tasks cannot be looked at twice."""

    def tasks(self, split):
        return iter([Task(split)])


class ArrayInState(Relay):
    """An array in a frozen state: equality of states is no answer."""

    def reset(self, task, seed):
        return Talk(start=np.zeros(3))


class RewardsByLastReset(Relay):
    """Correct for one episode; with several at once, the last reset decides the rewards."""

    def reset(self, task, seed):
        self.bonus = float(task.seed)
        return super().reset(task, seed)

    def step(self, state, replies):
        result = super().step(state, replies)
        process = dict.fromkeys(replies, Scored(self.bonus))
        return replace(result, rewards=replace(result.rewards, process=process))


class DataThatIsNoJson(Relay):
    """Task data that comes back changed from a file."""

    def tasks(self, split):
        return [Task(f"{split}-{at}", {"pair": (1, 2)}, seed=at) for at in range(5)]


class CannotBePickled(Relay):
    """A function in the state."""

    def reset(self, task, seed):
        return Talk(start=lambda: 0)


class CrashesOnNonsense(Relay):
    """A reply that is no number is a crash."""

    def step(self, state, replies):
        for reply in replies.values():
            int(reply)
        return super().step(state, replies)


class UndeclaredLateRewards(Relay):
    """A step gives no reward, and the environment does not declare late rewards."""

    late_rewards = False

    def step(self, state, replies):
        result = super().step(state, replies)
        return replace(result, rewards=Rewards(team=result.rewards.team))


class RewardsTheTeamLateUnsaid(Relay):
    """Every step has process rewards, the last one a team reward, and that is not declared."""

    late_rewards = False


class NeverRewards(Relay):
    """No role ever gets a reward."""

    late_rewards = True

    def step(self, state, replies):
        return replace(super().step(state, replies), rewards=Rewards())


class ShowsNothing(Relay):
    """An empty prompt."""

    def observe(self, state, role):
        return []


class ShowsTheClock(Relay):
    """The same state looks different the second time."""

    clock = itertools.count()

    def observe(self, state, role):
        return [user(f"it is {next(self.clock)}")]


class LeaksTheHand(Relay):
    """b must not know `start`, and is shown it."""

    def redeal(self, state, role, rng):
        return replace(state, start=state.start + 1) if role == "b" else state


class NoVersion(Relay):
    id = "relay"


class OneIdForAll(Relay):
    def tasks(self, split):
        return [Task(split), Task(split)]


class SplitsOverlap(Relay):
    def tasks(self, split):
        return [Task(f"task-{at}", seed=at) for at in range(5)]


class MaybeSucceeds(Relay):
    def success(self, state, role):
        return None


class NoRandomPlayer(Relay):
    players = {}


class SilentAboutSilence(Relay):
    def silence(self, state, role):
        return None


class AnswersWithANumber(Relay):
    def answer(self, state, role):
        return 42


class SoloForTwo(Relay):
    def solo(self) -> Environment:
        return self


class ShowsAnImageUnsaid(Relay):
    """b is shown an image, and nothing says so."""

    def observe(self, state, role):
        return [user("look", plain())]


class ShowsABrokenImage(ShowsAnImageUnsaid):
    """The image is cut short."""

    image_roles = ("a", "b")

    def observe(self, state, role):
        return [user("look", Image(plain().data[:-20]))]


BROKEN = {
    MutatesItsState: "mutated-state",
    MutableState: "mutable-state",
    ForksShareAState: "fork-leak",
    RemembersInItself: "hidden-memory",
    ForgetsTheSeed: "reset-not-repeatable",
    ChanceInStep: "step-not-repeatable",
    NeverEnds: "never-ends",
    StrangeRole: "unknown-role",
    RewardsAStranger: "unknown-role",
    RewardsTheSilent: "process-without-reply",
    NumbersForRewards: "raises",
    ActsByAString: "bad-acting",
    StepsToAState: "bad-result",
    WordsForMetrics: "bad-metrics",
    RewardsAsADict: "bad-rewards",
    OneRoleTwice: "bad-roles",
    NoEquality: "no-equality",
    Generators: "raises",
    ArrayInState: "raises",
    RewardsByLastReset: "hidden-memory",
    DataThatIsNoJson: "bad-tasks",
    CannotBePickled: "not-picklable",
    CrashesOnNonsense: "raises",
    UndeclaredLateRewards: "late-rewards",
    RewardsTheTeamLateUnsaid: "late-rewards",
    NeverRewards: "never-rewarded",
    ShowsNothing: "bad-observation",
    ShowsAnImageUnsaid: "undeclared-image",
    ShowsABrokenImage: "bad-image",
    SilentAboutSilence: "bad-silence",
    ShowsTheClock: "observe-not-repeatable",
    LeaksTheHand: "hidden-leak",
    NoVersion: "id-without-version",
    OneIdForAll: "bad-tasks",
    SplitsOverlap: "split-overlap",
    MaybeSucceeds: "bad-success",
    AnswersWithANumber: "bad-answer",
    NoRandomPlayer: "no-random-player",
    SoloForTwo: "no-solo",
}


def test_the_environment_they_all_break_is_sound() -> None:
    assert find_faults(Relay()) == []


class Compares(Relay):
    def success(self, state, role):
        return np.bool_(super().success(state, role))


def test_a_yes_of_numpy_is_a_yes() -> None:
    assert find_faults(Compares()) == []
    ended = Talk((("a", "1"), ("b", "2")))
    assert all(type(reached) is bool for reached in successes(Compares(), ended).values())


@pytest.mark.parametrize(("env", "fault"), BROKEN.items(), ids=lambda x: getattr(x, "__name__", x))
def test_each_fault_is_named(env: type[Relay], fault: str) -> None:
    with pytest.raises(EnvContractError) as caught:
        check_env(env(), max_steps=50)
    assert f"[{fault}]" in str(caught.value)


class NoTasks(Relay):
    def tasks(self, split):
        return []


class TasksByTheWay(Relay):
    """`tasks` is a generator."""

    def tasks(self, split):
        yield from super().tasks(split)


class ForgetsTestTasks(Relay):
    def tasks(self, split):
        return super().tasks(split) if split == "train" else None


class MeetsFarDown(Relay):
    """The last tasks to train on are the first to test on."""

    def tasks(self, split):
        every = [Task(f"task-{at}", seed=at) for at in range(300)]
        return every[:210] if split == "train" else every[200:]


class RoleWithoutComma(Relay):
    roles = "planner"


class ShowsText(Relay):
    def observe(self, state, role):
        return "say a digit"


class ShowsDicts(Relay):
    def observe(self, state, role):
        return [{"role": "user", "content": "say a digit"}]


class MissesItsFile(Relay):
    def reset(self, task, seed):
        raise FileNotFoundError("mazes.json")


STILLBORN = {
    NoTasks: "[bad-tasks] tasks('train') is empty",
    TasksByTheWay: "[bad-tasks] tasks('train') gave <generator",
    ForgetsTestTasks: "[bad-tasks] tasks('test') gave None; give a list of Task",
    MeetsFarDown: "[split-overlap] in both splits: ['task-200', 'task-201', 'task-202']",
    RoleWithoutComma: "[bad-roles] roles are the text 'planner'; write ('planner',)",
    ShowsNothing: "[bad-observation]",
    ShowsText: "[bad-observation] 'a' is shown 's",
    ShowsDicts: "[bad-observation] 'a' is shown {'role': 'user'",
    MissesItsFile: "[raises] reset raised FileNotFoundError: mazes.json",
}


@pytest.mark.parametrize(
    ("env", "words"), STILLBORN.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_what_cannot_begin_is_refused_at_the_start_of_a_run(env: type[Relay], words: str) -> None:
    with pytest.raises(EnvContractError, match=re.escape(words)):
        check_start(env(), forks=False)
    with pytest.raises(EnvContractError, match=re.escape(words.partition("]")[0])):
        check_env(env(), max_steps=50)


def test_a_first_play_that_never_begins_is_refused_with_the_line_that_it_is_in() -> None:
    class NeverBegins(Relay):
        def reset(self, task, seed):
            while True:
                time.sleep(0.01)

    with pytest.raises(EnvContractError, match=r"\[hangs\] not done after 0.1 s; it is in reset"):
        check_start(NeverBegins(), forks=False, seconds=0.1)


@pytest.mark.parametrize("env", [MutableState, NoEquality])
def test_states_that_siblings_would_share_are_refused_where_plays_fork(env: type[Relay]) -> None:
    with pytest.raises(EnvContractError, match=re.escape(f"[{BROKEN[env]}]")):
        check_start(env(), forks=True)
    check_start(env(), forks=False)


def test_a_run_without_tasks_to_test_on_may_begin() -> None:
    class TrainsOnly(Relay):
        def tasks(self, split):
            return super().tasks(split) if split == "train" else []

    check_start(TrainsOnly(), forks=True)
    with pytest.raises(EnvContractError, match=re.escape("tasks('test') is empty")):
        check_start(TrainsOnly(), forks=True, split="test")


def test_what_is_only_tested_on_may_be_evaluated() -> None:
    class TestsOnly(Relay):
        def tasks(self, split):
            return super().tasks(split) if split == "test" else []

    check_start(TestsOnly(), forks=False, split="test")
    with pytest.raises(EnvContractError, match=re.escape("tasks('train') is empty")):
        check_start(TestsOnly(), forks=False)
