"""Simulated rollouts: the episodes of a group, on the workers and engines of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pettingllms.simulation.clock import Clock, Countdown, Event, Process
from pettingllms.simulation.cluster import SimulatedCluster
from pettingllms.simulation.engine import Engine, Request
from pettingllms.simulation.speeds import LoopSpeed, Speeds
from pettingllms.simulation.workload import Ask, EpisodePlan


@dataclass(slots=True)
class PolicyWork:
    """What a learner gets from one group."""

    num_tokens: int = 0
    """Distinct tokens: a prefix that several replies share counts once."""
    num_replies: int = 0
    reply_tokens: int = 0


@dataclass(slots=True)
class PlayedGroup:
    """A group under way or finished."""

    number: int
    task_id: str
    work: dict[str, PolicyWork] = field(default_factory=dict)
    """By policy."""
    versions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Replies by policy and version, of policies that learn."""
    engines: dict[str, Engine] = field(default_factory=dict)
    """The engine that answers for each policy."""
    num_episodes: int = 0
    """Episodes that have ended."""

    @property
    def reply_tokens(self) -> int:
        """Sampled tokens of all policies."""
        return sum(one.reply_tokens for one in self.work.values())


class Rollouts:
    """Plays groups."""

    def __init__(self, clock: Clock, cluster: SimulatedCluster, speeds: Speeds) -> None:
        self._clock = clock
        self._cluster = cluster
        self._loop: LoopSpeed = speeds.loop
        self._latency = {
            policy: speeds.models[model.group.name].engine.request
            for model in cluster.models.values()
            for policy in model.group.policies
        }
        self._free_at = [0.0] * speeds.loop.num_workers
        """When each rollout worker has done what it has to do."""
        self._num_started = 0
        self.num_turns = 0
        """Turns that have ended."""

    def free_at(self, worker: int = 0) -> float:
        """When a rollout worker is idle."""
        return self._free_at[worker]

    def start(
        self, number: int, task_id: str, episodes: Sequence[EpisodePlan]
    ) -> tuple[PlayedGroup, Event]:
        """Play all episodes of a group; the event is the end of the last."""
        group = PlayedGroup(number, task_id)
        _add_work(group, episodes)
        group.engines = {one: self._cluster.engine_of(one, task_id) for one in group.work}
        self._num_started += 1
        key, worker = self._num_started, self._num_started % len(self._free_at)
        done = Countdown(len(episodes))

        def ended() -> None:
            group.num_episodes += 1
            done.count()

        for episode in episodes:
            self._clock.start(self._episode(group, key, worker, episode)).then(ended)
        return group, done

    def _episode(self, group: PlayedGroup, key: int, worker: int, episode: EpisodePlan) -> Process:
        yield self._at_worker(worker)
        for decision in episode.decisions:
            answered = Countdown(len(decision))
            for ask in decision:
                self._send(group, key, ask, answered)
            yield answered
            self.num_turns += sum(len(ask.replies) for ask in decision)
            latency = self._latency[decision[0].policy] + self._loop.env
            yield latency + self._at_worker(worker)

    def _send(self, group: PlayedGroup, key: int, ask: Ask, answered: Countdown) -> None:
        def done() -> None:
            if ask.policy in self._cluster.versions:
                place = ask.policy, request.version
                group.versions[place] = group.versions.get(place, 0) + len(ask.replies)
            answered.count()

        request = Request(ask, key, done)
        group.engines[ask.policy].submit(request)

    def _at_worker(self, worker: int) -> float:
        """Seconds until a worker has done its part of a turn."""
        now, free_at = self._clock.now, self._free_at[worker]
        self._free_at[worker] = free_at = (max(now, free_at)) + self._loop.worker
        return free_at - now


def _add_work(group: PlayedGroup, episodes: Sequence[EpisodePlan]) -> None:
    seen: set[tuple[str, int]] = set()
    for episode in episodes:
        for decision in episode.decisions:
            for ask in decision:
                work = group.work.setdefault(ask.policy, PolicyWork())
                place = ask.policy, ask.place
                work.num_tokens += ask.prompt - (ask.shared if place in seen else 0)
                seen.add(place)
                length = sum(ask.replies)
                work.num_tokens += length
                work.reply_tokens += length
                work.num_replies += len(ask.replies)
