"""The work of a finished run, as its folder records it: the requests of every group by step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pettingllms.errors import ConfigError
from pettingllms.simulation.workload import Ask, Decision, EpisodePlan
from pettingllms.types import Episode, Ids, Turn, read_episodes

SKIPPED = 1
"""Steps at the beginning that are slower: caches are empty."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a finished run."""

    seconds: dict[str, float]
    """Seconds of each part."""
    groups: list[list[EpisodePlan]]


@dataclass(slots=True)
class RecordedWork:
    """Plays the groups of a run again, in their order."""

    groups: Sequence[Sequence[EpisodePlan]]
    next: int = 0

    def group(self, number: int, attempt: int) -> Sequence[EpisodePlan]:
        """The next group, whatever its number: synchronous runs start them in order."""
        del number, attempt
        self.next += 1
        return self.groups[self.next - 1]


def recorded_steps(run: Path) -> list[RecordedStep]:
    """The steps of a run whose episodes were kept, without the first."""
    try:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(str(run), [f"not a run folder: {error.strerror}"]) from None
    steps = []
    for row in map(json.loads, lines[SKIPPED:]):
        seconds = {key[5:]: value for key, value in row.items() if key.startswith("time/")}
        number = int(row["step"])
        groups: dict[str, list[Episode]] = {}
        try:
            for episode in read_episodes(run / "episodes" / f"step-{number:06d}"):
                groups.setdefault(episode.task.id, []).append(episode)
        except FileNotFoundError:
            continue
        steps.append(RecordedStep(seconds, [_plans(group) for group in groups.values()]))
    if not steps:
        raise ConfigError(
            str(run), ["has no episodes after its first step; train with log.episodes = true"]
        )
    return steps


def _plans(episodes: Sequence[Episode]) -> list[EpisodePlan]:
    first: dict[tuple[str, int], Ids] = {}
    return [EpisodePlan(tuple(_decisions(episode, first))) for episode in episodes]


def _decisions(episode: Episode, first: dict[tuple[str, int], Ids]) -> list[Decision]:
    """Decisions of an episode: siblings have one prompt, and roles that act together one step."""
    asked: list[list[Turn]] = []
    for turn in episode.turns:
        before = asked[-1][0] if asked else None
        if before is not None and turn.links.branch and before.role == turn.role:
            asked[-1].append(turn)
        else:
            asked.append([turn])
    decisions: list[list[list[Turn]]] = []
    for turns in asked:
        step = turns[0].links.step
        same = decisions and step is not None and decisions[-1][0][0].links.step == step
        if same and turns[0].links.branch is None:
            decisions[-1].append(turns)
        else:
            decisions.append([turns])
    return [
        tuple(_ask(turns, place, first) for turns in decision)
        for place, decision in enumerate(decisions)
    ]


def _ask(turns: Sequence[Turn], place: int, first: dict[tuple[str, int], Ids]) -> Ask:
    turn = turns[0]
    prompt = turn.prompt_ids
    known = first.setdefault((turn.policy, place), prompt)
    replies = tuple(len(one.response_ids) for one in turns)
    return Ask(turn.policy, len(prompt), _common(prompt, known), replies, place)


def _common(one: Ids, other: Ids) -> int:
    """Length of the common prefix."""
    size = min(len(one), len(other))
    differs = np.nonzero(one[:size] != other[:size])[0]
    return int(differs[0]) if len(differs) else size
