"""Run the episodes of a bench and time every reply of the evaluated player."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pettingllms.config import RewardConfig
from pettingllms.evaluation.players import Env
from pettingllms.evaluation.suites.evaluated import PlayerFor
from pettingllms.evaluation.suites.scoring import EpisodeScore, score_episode
from pettingllms.evaluation.suites.suite import SOLO, TEAM, Bench
from pettingllms.evaluation.suites.token_matched import num_samples_for
from pettingllms.rollouts import Player, Worker, in_order
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Sample, Sampler, SampleRequest, Task


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for all benches."""

    seed: int = 0
    max_concurrent: int = 64
    """Concurrent episodes."""
    seconds: float = 600.0
    """Timeout per reply."""
    temperature: float | None = None
    """Overrides all other temperatures; 0 is greedy."""


@dataclass(frozen=True, slots=True)
class Form:
    """A bench in team or solo form: environment, tasks, and roles of the evaluated player."""

    bench: Bench
    name: str
    env: Env
    tasks: Sequence[Task]
    roles: Sequence[str]
    role: str
    """The role whose success is reported."""

    @property
    def label(self) -> str:
        """Name in the table: team, solo, or the roles of the evaluated player if not all."""
        return self.name if len(self.roles) == len(self.env.roles) else ", ".join(self.roles)


@dataclass(slots=True)
class FormEpisodes:
    """The episodes of a form so far."""

    episodes: list[Episode] = field(default_factory=list)
    scores: list[EpisodeScore] = field(default_factory=list)
    num_samples: int = 0
    """Episodes per task."""
    seconds: float = 0.0
    """Total time spent waiting for replies."""


class TimedSampler:
    """A sampler that measures the time of its replies."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.seconds = 0.0

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Sample, and add the elapsed time."""
        start = time.perf_counter()
        try:
            return await self._sampler.sample(request)
        finally:
            self.seconds += time.perf_counter() - start


async def run_bench(
    forms: Mapping[str, Form],
    player_for: PlayerFor,
    settings: Settings,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, FormEpisodes]:
    """Run every form. If team and solo are compared, the cheaper one gets more episodes until both
    have used the same number of tokens. `progress` gets the number of finished episodes and the
    total."""
    bench = next(iter(forms.values())).bench
    wanted = dict.fromkeys(forms, bench.num_samples)
    found = {name: FormEpisodes() for name in forms}

    def end() -> None:
        total = sum(wanted[name] * len(form.tasks) for name, form in forms.items())
        progress(sum(len(one.episodes) for one in found.values()), total)

    for name, form in forms.items():
        await _run_until(form, found[name], wanted[name], player_for, settings, end)
    if len(forms) > 1:
        most = bench.max_samples
        numbers = num_samples_for(found[TEAM].scores, found[SOLO].scores, most)
        wanted = dict(zip((TEAM, SOLO), numbers, strict=True))
        for name, form in forms.items():
            await _run_until(form, found[name], wanted[name], player_for, settings, end)
    return found


async def _run_until(
    form: Form,
    done: FormEpisodes,
    num_samples: int,
    player_for: PlayerFor,
    settings: Settings,
    end: Callable[[], None],
) -> None:
    """Run the missing episodes of each task."""
    if num_samples <= done.num_samples:
        return
    players, samplers = _players(form, player_for, settings)
    missing = num_samples - done.num_samples
    config = form.bench.rollout(missing, settings.max_concurrent, settings.seconds)
    worker = Worker(form.env, players, config, RewardConfig())
    seed = derive_seed(settings.seed, "suite", form.bench.title)

    def deliver(episode: Episode) -> None:
        done.episodes.append(episode)
        end()

    await worker.run(form.tasks, seed, deliver, done.num_samples)
    done.episodes = in_order(done.episodes, form.tasks)
    models = [role for role in form.roles if not players[role].reads_state]
    in_bytes = not models or any(players[role].in_bytes for role in models)
    counted = models or form.roles
    metrics = form.bench.metrics
    done.scores = [score_episode(e, form.role, counted, in_bytes, metrics) for e in done.episodes]
    done.num_samples = num_samples
    done.seconds += sum(sampler.seconds for sampler in samplers)


def _players(
    form: Form, player_for: PlayerFor, settings: Settings
) -> tuple[dict[str, Player], list[TimedSampler]]:
    players, samplers = {}, []
    for role in form.env.roles:
        if role not in form.roles:
            players[role] = scripted_player(form.env, form.bench.others)
            continue
        player = player_for(form.env, role)
        sampler = TimedSampler(player.sampler)
        samplers.append(sampler)
        candidates = (settings.temperature, form.bench.temperature, player.temperature)
        temperature = next(one for one in candidates if one is not None)
        players[role] = replace(
            player,
            sampler=sampler,
            temperature=temperature,
            truncation=form.bench.truncation or player.truncation,
        )
    return players, samplers
