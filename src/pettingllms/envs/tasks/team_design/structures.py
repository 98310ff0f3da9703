"""Known structures of teams, and random changes of a graph for players and searches."""

import random
from dataclasses import replace

from pettingllms.envs.tasks.team_design.graph import (
    LABELS,
    Executor,
    Limits,
    TeamGraph,
    executor_role,
)


def single(num_parts: int) -> TeamGraph:
    """One executor that reads all parts."""
    return _numbered([Executor("", tuple(LABELS[:num_parts]))])


def chain(num_parts: int) -> TeamGraph:
    """One executor per part; each adds its part to the reply of the one before."""
    return _numbered(
        [Executor("", (LABELS[at],), (executor_role(at),) if at else ()) for at in range(num_parts)]
    )


def readers_and_combiner(num_parts: int) -> TeamGraph:
    """One reader per part, and an executor that combines their replies. One part needs neither."""
    if num_parts == 1:
        return single(1)
    readers = [Executor("", (LABELS[at],)) for at in range(num_parts)]
    heard = tuple(executor_role(at + 1) for at in range(num_parts))
    return _numbered([*readers, Executor("", (), heard)])


def vote(num_parts: int, num_voters: int = 3) -> TeamGraph:
    """Several executors that read all parts, and one that takes the majority of their replies."""
    readers = [Executor("", tuple(LABELS[:num_parts]))] * num_voters
    heard = tuple(executor_role(at + 1) for at in range(num_voters))
    return _numbered([*readers, Executor("", (), heard, "vote")])


def is_readers_and_combiner(graph: TeamGraph, num_parts: int) -> bool:
    """Whether the graph is `readers_and_combiner`, up to the numbers of its executors."""
    readers = [one for one in graph.executors if one.role != graph.answers]
    answerer = graph.executor(graph.answers)
    if answerer is None or graph.rounds > 1 or any(one.prompt != "sum" for one in graph.executors):
        return False
    if num_parts == 1:
        return not readers and answerer.reads == ("a",)
    read = sorted(one.reads for one in readers)
    return (
        read == [(label,) for label in LABELS[:num_parts]]
        and not any(one.hears for one in readers)
        and not answerer.reads
        and set(answerer.hears) == {one.role for one in readers}
    )


def random_graph(limits: Limits, rng: random.Random) -> TeamGraph:
    """A random valid graph: each executor reads and hears at random; the last one answers."""
    size = rng.randint(1, limits.max_executors)
    return _numbered([_random_executor(number, limits, rng) for number in range(1, size + 1)])


def mutated(graph: TeamGraph, limits: Limits, rng: random.Random) -> TeamGraph:
    """The graph after one to three random changes: an executor more or less, or one that reads,
    hears or computes something else."""
    team = list(graph.executors)
    for _ in range(rng.randint(1, 3)):
        change = rng.choice(("add", "join", "remove", "reads", "hears", "prompt"))
        at = rng.randrange(len(team))
        if change == "add" and len(team) < limits.max_executors:
            team.append(_random_executor(len(team) + 1, limits, rng))
        elif change == "join" and len(team) < limits.max_executors:
            all_heard = {role for one in team for role in one.hears}
            unheard = tuple(one.role for one in team if one.role not in all_heard)
            team.append(Executor(executor_role(len(team) + 1), (), unheard))
        elif change == "remove" and len(team) > 1:
            team = _without(team, at)
        elif change == "reads":
            label = rng.choice(LABELS[: limits.num_parts])
            reads = _toggled(team[at].reads, label)[-limits.max_reads :]
            team[at] = replace(team[at], reads=reads)
        elif change == "hears" and at:
            earlier = team[rng.randrange(at)].role
            team[at] = replace(team[at], hears=_toggled(team[at].hears, earlier))
        elif change == "prompt":
            other = "sum" if team[at].prompt == "vote" else "vote"
            team[at] = replace(team[at], prompt=other)
        team = list(_numbered(team).executors)
    return _numbered(team)


def pruned(graph: TeamGraph) -> TeamGraph:
    """The graph without executors whose replies never reach the answer."""
    reaching = {graph.answers}
    for one in reversed(graph.executors):  # each acts after those it hears
        if one.role in reaching:
            reaching.update(one.hears)
    return _numbered([one for one in graph.executors if one.role in reaching])


def _random_executor(number: int, limits: Limits, rng: random.Random) -> Executor:
    labels = [one for one in LABELS[: limits.num_parts] if rng.random() < 0.5]
    hears = [executor_role(one) for one in range(1, number) if rng.random() < 0.5]
    prompt = "vote" if rng.random() < 0.2 else "sum"
    reads = tuple(labels[: limits.max_reads])
    return Executor(executor_role(number), reads, tuple(hears), prompt)


def _toggled(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    kept = [one for one in names if one != name]
    return tuple(sorted(kept if name in names else [*kept, name]))


def _without(team: list[Executor], at: int) -> list[Executor]:
    gone = team[at].role
    rest = [one for one in team if one.role != gone]
    return [replace(one, hears=tuple(h for h in one.hears if h != gone)) for one in rest]


def _numbered(team: list[Executor]) -> TeamGraph:
    """The team with its executors numbered by position; executors without a role keep what they
    hear. The last one answers."""
    names = {one.role: executor_role(at) for at, one in enumerate(team, 1) if one.role}
    numbered = tuple(
        replace(
            one,
            role=executor_role(at),
            hears=tuple(sorted(names.get(heard, heard) for heard in one.hears)),
        )
        for at, one in enumerate(team, 1)
    )
    return TeamGraph(numbered, numbered[-1].role)
