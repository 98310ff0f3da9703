"""Replay rollouts: a finished episode is played again with one thing changed, all else as it was.

Environments are pure, so what-if costs no more than the replies that really are new. Either one
reply is exchanged for others that its role might have given in the same state, or a role is silent
in all its turns. Whatever else was said is taken from the record, text and tokens: each role says
its next reply, and nobody is asked until the record of a role is used up. What the episode and a
replay were paid then differs by what was changed and by nothing else.

Replays are made in the order of play. Each stands in the episode behind the step that it was played
from, and its steps name the trunk's own turns wherever the record was followed.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.rollout.guard import CallFailed
from pettingllms.rollout.linear import play_linear
from pettingllms.rollout.table import Position, Table
from pettingllms.rollout.tree import graft, void_if_cut
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Turn

Script = dict[str, deque[int]]
"""For each role the turns that it says next, by index."""


async def play_replay(table: Table, episode: Episode, path: int | str) -> None:
    """Play the episode as linear rollouts do, then replay it."""
    visited: list[Position] = []
    await play_linear(table, episode, path, visited)
    if episode.failure is not None or not visited:
        return
    budget = Budget(table.config.max_extra_tokens)
    record = Record(table, episode, len(episode.turns))
    if table.config.replay == "silent":
        await record.remove_roles(visited[0], budget)
        return
    for step, at in enumerate(visited):
        for index in episode.steps[step].turns:
            if table.seats[episode.turns[index].role].trained and not budget.over:
                await record.exchange(index, step, at, budget)


@dataclass(slots=True)
class Budget:
    """Tokens that may be sampled, and whether more were needed."""

    limit: int
    used: int = 0
    over: bool = False

    def each(self, number: int) -> int:
        """How many tokens each of a number of replies may have; none is asked for if that is 0."""
        each = (self.limit - self.used) // number
        self.over |= each < 1
        return each

    def pay(self, table: Table, turns: Sequence[Turn], may_be_cut: bool) -> None:
        """Count replies; one that was cut for want of tokens was not said to its end."""
        self.used += table.num_sampled(turns)
        self.over |= may_be_cut and any(turn.finish == "length" for turn in turns)


@dataclass(frozen=True, slots=True)
class Record:
    """A finished episode and the table that it was played at."""

    table: Table
    episode: Episode
    num_turns: int
    """Turns of the trunk. They stand first in the episode and in every replay of it."""

    async def exchange(self, index: int, step: int, at: Position, budget: Budget) -> None:
        """Sample other replies for a turn of the trunk, and replay the rest with each of them."""
        turn, number = self.episode.turns[index], self.table.config.num_replays
        if (each := budget.each(number)) < 1:
            return
        again = Position(at.state, None, derive_seed(at.seed, "replay", turn.role))
        others = await self.table.ask_again(again, self.episode.task, turn, number, each)
        budget.pay(self.table, others, each < self.table.config.max_reply_tokens)
        turn.branch = 0
        for branch, other in enumerate(others, start=1):
            other.branch = branch
            other.failure = other.failure or (self._cut() if budget.over else None)
        shares = [Budget((budget.limit - budget.used) // number) for _ in others]
        plays = await asyncio.gather(
            *(
                self._play(
                    again.after(at.state, None, str(other.branch)),
                    step,
                    self._script(step, turn.role),
                    share,
                    first=other,
                )
                for other, share in zip(others, shares, strict=True)
            )
        )
        budget.used += sum(share.used for share in shares)
        budget.over |= any(share.over for share in shares)
        for play in plays:
            graft(self.table, self.episode, play, at.step, num_shared=self.num_turns)
        void_if_cut(others)

    async def remove_roles(self, start: Position, budget: Budget) -> None:
        """Replay the whole episode once for each role that learns, with the role silent."""
        roles = [turn.role for turn in self.episode.turns if self.table.seats[turn.role].trained]
        for role in dict.fromkeys(roles):
            if budget.over:
                return
            seeded = start.after(start.state, None, "without", role)
            play = await self._play(seeded, 0, self._script(0), budget, silent=role)
            last = graft(self.table, self.episode, play, None, num_shared=self.num_turns)
            if (end := play.failure or last) is not None:
                self.episode.without[role] = end

    def _script(self, step: int, role: str | None = None) -> Script:
        """What was said from a step on. The role begins with the first turn that a replay adds."""
        script: Script = {}
        for index, turn in enumerate(self.episode.turns[: self.num_turns]):
            assert turn.step is not None  # noqa: S101 - the trunk came to its end
            if turn.step >= step:
                script.setdefault(turn.role, deque()).append(index)
        if role is not None:
            kept = list(script[role])[1:] if self.table.config.replay == "kept" else []
            script[role] = deque([self.num_turns, *kept])
        return script

    async def _play(
        self,
        at: Position,
        num_steps: int,
        script: Script,
        budget: Budget,
        first: Turn | None = None,
        silent: str | None = None,
    ) -> Episode:
        """A replay as a small episode of its own, so that replays cannot mix."""
        trunk = self.episode
        play = Episode(trunk.id, trunk.env, trunk.task, trunk.seed, trunk.turns[: self.num_turns])
        if first is not None:
            play.turns.append(first)
            play.failure = first.failure
        try:
            while play.failure is None and (roles := await self.table.acting(at)):
                if reason := self.table.over_limit(num_steps):
                    at = self.table.cut(at, play, reason)
                    continue
                turns = await self._replies(play, at, roles, script, budget, silent)
                if not turns:
                    break
                state, step = await self.table.step(at, play, turns)
                for index in turns:
                    if index >= self.num_turns:
                        play.turns[index].step = step
                at = at.after(state, step, "next")
                play.last = step
                num_steps += 1
        except CallFailed as failed:
            play.failure = failed.failure
        for turn in play.turns[self.num_turns :]:
            turn.last = play.last
            turn.failure = turn.failure or play.failure
        return play

    async def _replies(
        self,
        play: Episode,
        at: Position,
        roles: Sequence[str],
        script: Script,
        budget: Budget,
        silent: str | None,
    ) -> list[int]:
        """What the acting roles say, by index: silence, the record, or a new reply."""
        said: dict[str, int] = {}
        asked: list[str] = []
        for role in roles:
            if role == silent:
                said[role] = len(play.turns)
                play.turns.append(await self.table.silence(at, role))
            elif script.get(role):
                said[role] = script[role].popleft()
            else:
                asked.append(role)
        if asked and (each := budget.each(len(asked))) > 0:
            task, numbers = self.episode.task, dict.fromkeys(asked, 1)
            new = [turn for (turn,) in await self.table.ask_all(at, task, numbers, each)]
            budget.pay(self.table, new, each < self.table.config.max_reply_tokens)
            said |= {role: len(play.turns) + number for number, role in enumerate(asked)}
            play.turns += new
            play.failure = next((turn.failure for turn in new if turn.failure), None)
        if asked and budget.over:
            play.failure = self._cut()
        return [] if play.failure else [said[role] for role in roles]

    def _cut(self) -> Failed:
        cap = self.table.config.max_extra_tokens
        return Failed(f"cut by the end of {cap} extra tokens (rollout.max_extra_tokens)", "limit")
