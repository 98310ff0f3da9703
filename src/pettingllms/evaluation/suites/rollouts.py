"""Plays of a bench, with a clock on every reply of the subject."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pettingllms.config import RewardConfig
from pettingllms.evaluation.players import Env
from pettingllms.evaluation.suites.evaluated import PlayerFor
from pettingllms.evaluation.suites.scoring import Play, play_of
from pettingllms.evaluation.suites.suite import SOLO, TEAM, Bench
from pettingllms.evaluation.suites.token_matched import num_plays_for
from pettingllms.rollout import Player, Worker, in_order
from pettingllms.rollout.scripted import scripted_player
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Sample, Sampler, SampleRequest, Task


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all benches."""

    seed: int = 0
    max_concurrent: int = 64
    """Plays at once."""
    seconds: float = 600.0
    """How long one reply may take."""
    temperature: float | None = None
    """In place of every other; 0 is greedy."""


@dataclass(frozen=True, slots=True)
class Form:
    """A bench in one form: the environment, the tasks, and the subject's roles in it."""

    bench: Bench
    name: str
    env: Env
    tasks: Sequence[Task]
    roles: Sequence[str]
    role: str
    """Whose success is reported."""

    @property
    def label(self) -> str:
        """As the table has it: team or solo, or the only role of several that the subject has."""
        return self.name if len(self.roles) == len(self.env.roles) else ", ".join(self.roles)


@dataclass(slots=True)
class Played:
    """Plays of a form so far."""

    episodes: list[Episode] = field(default_factory=list)
    plays: list[Play] = field(default_factory=list)
    num_plays: int = 0
    """Of each task."""
    seconds: float = 0.0
    """Waited for replies."""


class Clocked:
    """A sampler whose replies are timed."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.seconds = 0.0

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Ask, and add the time that it took."""
        start = time.perf_counter()
        try:
            return await self._sampler.sample(request)
        finally:
            self.seconds += time.perf_counter() - start


async def play_bench(
    forms: Mapping[str, Form],
    player_of: PlayerFor,
    settings: Settings,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, Played]:
    """Play every form; where team and solo are compared, the cheaper one goes on until both have
    used the same tokens. `progress` is told how many plays have ended, and of how many."""
    bench = next(iter(forms.values())).bench
    wanted = dict.fromkeys(forms, bench.num_samples)
    found = {name: Played() for name in forms}

    def end() -> None:
        total = sum(wanted[name] * len(form.tasks) for name, form in forms.items())
        progress(sum(len(one.episodes) for one in found.values()), total)

    for name, form in forms.items():
        await _play_on(form, found[name], wanted[name], player_of, settings, end)
    if len(forms) > 1:
        most = bench.max_samples
        numbers = num_plays_for(found[TEAM].plays, found[SOLO].plays, most)
        wanted = dict(zip((TEAM, SOLO), numbers, strict=True))
        for name, form in forms.items():
            await _play_on(form, found[name], wanted[name], player_of, settings, end)
    return found


async def _play_on(
    form: Form,
    played: Played,
    num_plays: int,
    player_of: PlayerFor,
    settings: Settings,
    end: Callable[[], None],
) -> None:
    """Play each task as often as is still wanted."""
    if num_plays <= played.num_plays:
        return
    players, clocks = _players(form, player_of, settings)
    missing = num_plays - played.num_plays
    config = form.bench.rollout(missing, settings.max_concurrent, settings.seconds)
    worker = Worker(form.env, players, config, RewardConfig())
    seed = derive_seed(settings.seed, "suite", form.bench.title)

    def deliver(episode: Episode) -> None:
        played.episodes.append(episode)
        end()

    await worker.run(form.tasks, seed, deliver, played.num_plays)
    played.episodes = in_order(played.episodes, form.tasks)
    models = [role for role in form.roles if not players[role].reads_state]
    in_bytes = not models or any(players[role].in_bytes for role in models)
    counted = models or form.roles
    played.plays = [play_of(e, form.role, counted, in_bytes) for e in played.episodes]
    played.num_plays = num_plays
    played.seconds += sum(clock.seconds for clock in clocks)


def _players(
    form: Form, player_of: PlayerFor, settings: Settings
) -> tuple[dict[str, Player], list[Clocked]]:
    players, clocks = {}, []
    for role in form.env.roles:
        if role not in form.roles:
            players[role] = scripted_player(form.env, form.bench.others)
            continue
        player = player_of(form.env, role)
        clock = Clocked(player.sampler)
        clocks.append(clock)
        wishes = (settings.temperature, form.bench.temperature, player.temperature)
        heat = next(wish for wish in wishes if wish is not None)
        players[role] = replace(player, sampler=clock, temperature=heat)
    return players, clocks
