"""One episode of a program: its calls are answered and recorded here, and nowhere else.

A reply that the program was not given whole is kept, and nobody trains on it: it had no part in
what the episode was paid for. A call is counted when it comes in and when it is recorded; an
episode in which the two differ fails.
"""

import bisect
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pettingllms.errors import ClusterError, ImageError
from pettingllms.gateway.calls import Answered, Call, CallError, Reply
from pettingllms.gateway.rendering import Prompt, Prompts
from pettingllms.gateway.roles import RoleMap
from pettingllms.gateway.templates import Template
from pettingllms.gateway.threads import off_loop
from pettingllms.gateway.tool_prompts import calls_of, whole_letters
from pettingllms.rollouts.player import Player, TurnRequest, sample_turns
from pettingllms.runtime.in_flight import ServiceClock
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    Episode,
    Failed,
    PromptTooLong,
    Reward,
    Rewards,
    Step,
    Turn,
    total,
)
from pettingllms.vision.families import ADVICE

Watch = Callable[[Call, Answered, int, int], None]
"""Takes a call, its replies, and when it began and ended, in nanoseconds."""
LEFT = Failed("the program left before it had the whole reply", "environment")


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the calls of one episode are cut."""

    max_calls: int = 200
    max_reply_tokens: int = 512
    max_episode_tokens: int = 1_000_000
    sampler_timeout: float = 600.0
    guided: bool = False
    """Whether a schema also narrows what roles that learn can say; nobody trains on that."""
    exclude_cuts: bool = True
    """Whether an episode that a limit cuts fails (rollout.on_limit)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that was understood: what the role is asked, and all that the record needs."""

    call: Call
    role: str
    question: TurnRequest
    prompt: Prompt
    set_aside: tuple[str, ...]
    is_short: bool
    """Whether the tokens that are left for the episode bound the reply, and nothing else does."""


@dataclass(slots=True)
class Session:
    """The open record of an episode."""

    episode: Episode
    players: Mapping[str, Player]
    roles: RoleMap
    templates: Mapping[str, Template]
    """By role."""
    seed: int
    limits: Limits = field(default_factory=Limits)
    num_served: int = 0
    """Calls that came in and were not refused."""
    num_recorded: int = 0
    """Calls that left a record."""
    num_asked: int = 0
    """Replies that samplers were asked for, those that are still to come too."""
    is_closed: bool = False
    limit: str = ""
    """The limit that cut the episode: it takes no more calls."""
    cut_roles: tuple[str, ...] = ()
    """Roles whose replies it cut; none: the episode as a whole."""
    too_long: str = ""
    """Why the last call's prompt was too long, if earlier replies made it so. The program may send
    a shorter one."""
    fatal: ClusterError | None = None
    """Why no engine will answer any more."""
    watch: Watch | None = None
    """Is told of every call that was answered."""
    clock: ServiceClock | None = None
    """Of the program, which stands still while one of its calls waits for an engine."""
    _prompts: Prompts = field(init=False)
    _same: dict[bytes, int] = field(default_factory=dict)
    """How often each prompt was asked."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """Turns by the own part of their reply's id."""
    _delivered: set[int] = field(default_factory=set)
    _cut_turns: tuple[int, ...] = ()
    _paid: dict[int, list[Rewards]] = field(default_factory=dict)
    """What was posted, by the turn that it came after."""

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.templates)

    async def answer(self, call: Call, bound: str | None) -> Answered:
        """Reply to a call, and record it."""
        self._refuse_late()
        self.num_served += 1
        is_understood = False
        try:
            role = self.roles.of(call, bound)
            await self._look(call, role)
            make = self._prompts.make
            prompt = await off_loop(call.num_bytes, make, call, role, self._narrows(role))
            self._refuse_late()
            asked = self._understood(call, role, prompt)
            is_understood = True
            self.num_asked += asked.question.num_samples
        finally:
            if not is_understood:  # no sampler was asked
                self.num_served -= 1
        start = time.time_ns()
        try:
            turns = await sample_turns(self.players[asked.role], asked.question)
        except ClusterError as error:
            self.fatal = error
            raise CallError(503, "no engine answers any more") from error
        if self.is_closed:
            raise CallError(401, "the episode ended before this reply came")
        self.num_recorded += 1
        replies = [self._recorded(asked, turn) for turn in turns]
        turns = [reply.turn for reply in replies]
        self._look_for_limits(asked, turns)
        failure = next(
            (turn.credit.failure for turn in turns if turn.credit.failure is not None), None
        )
        if failure is not None:
            raise CallError(400 if failure.owner == "limit" else 503, failure.reason)
        answered = Answered(asked.role, replies, asked.set_aside)
        if self.watch is not None:
            self.watch(call, answered, start, time.time_ns())
        return answered

    def _look_for_limits(self, asked: Asked, turns: Sequence[Turn]) -> None:
        """End the episode if a limit cut one of these replies, the latest of the record."""
        if self.limit:
            return  # a call beside this one ended it
        failure = turns[0].credit.failure
        is_first = all(turn.credit.failure is not None for turn in self.episode.turns)
        self.too_long = (
            failure.reason if isinstance(failure, PromptTooLong) and not is_first else ""
        )
        count = len(self.episode.turns)
        self._cut_turns = tuple(range(count - len(turns), count))
        if reason := next((turn.limit for turn in turns if turn.limit), ""):
            if self.limits.exclude_cuts:
                for turn in turns:
                    turn.credit.failure = (
                        Failed(turn.limit, "limit") if turn.limit else turn.credit.failure
                    )
                return
            self.cut_roles = (asked.role,)
            self._cut(reason)
        if asked.is_short and any(turn.finish == "length" for turn in turns):
            self._cut_by_tokens()
        self._cut_turns = ()

    def end_at_limit(self, rewards: Rewards) -> None:
        """Add the step with which a cut episode ends."""
        episode, index = self.episode, len(self.episode.steps)
        episode.steps.append(Step(episode.last, self._cut_turns, rewards, limit=self.limit))
        episode.last = index
        for number in self._cut_turns:
            episode.turns[number].links.step = index

    def deliver(self, answered: Answered) -> None:
        """The program has the replies, so they count."""
        self._delivered.update(self._numbers[own_part(reply.id)] for reply in answered.replies)

    def pay(self, rewards: Rewards, reply: str | None = None) -> None:
        """Take a reward from the program; `reply` is the one that it is for, else the latest."""
        self._refuse_late()
        unknown = {*rewards.process, *rewards.agent} - set(self.roles.roles)
        if unknown:
            raise CallError(400, f"there is no role '{min(unknown)[:40]}' in this program", "role")
        at = self._latest(rewards) if reply is None else self._numbers.get(own_part(reply))
        if at is None and reply is not None:
            raise CallError(404, "there is no such reply in this episode", "reply")
        if at is None or rewards.process.keys() - {self.episode.turns[at].role}:
            raise CallError(409, "there is no reply yet that this could be paid for")
        self._paid.setdefault(at, []).append(rewards)

    def close(self) -> None:
        """Make the episode of what was recorded: one step for each reply that was delivered."""
        self.is_closed = True
        episode = self.episode
        for number, turn in enumerate(episode.turns):
            if number in self._cut_turns:
                continue
            if turn.credit.failure is None and number not in self._delivered:
                turn.credit.failure = LEFT
            if turn.credit.failure is not None:
                continue
            turn.links.step = len(episode.steps)
            step = Step(episode.last, (number,), merged(self._paid.pop(number, [])))
            step.metrics = {"new_segment": float(turn.links.extends is None)}
            episode.steps.append(step)
            episode.last = turn.links.step
        if self.num_served != self.num_recorded:
            episode.failure = Failed(
                f"{self.num_served} calls were served and {self.num_recorded} recorded: the "
                "program ended while a reply was under way; let it await all its calls, and give "
                "its client more time than a reply takes, as one that gave up asks again",
                "environment",
            )
        elif episode.last is None and episode.failure is None and not self.limit:
            episode.failure = Failed("the program was given no reply by any role", "environment")
        elif self._paid and episode.failure is None:
            lost = "rewards were posted for a reply that the program never had whole"
            episode.failure = Failed(lost, "environment")

    def _refuse_late(self) -> None:
        if self.is_closed:
            raise CallError(401, "the episode is over: it takes no more calls and rewards")
        if self.limit:
            raise CallError(400, f"the episode was ended: {self.limit}")

    async def _look(self, call: Call, role: str) -> None:
        """Refuse images that the role cannot be shown. Other calls do not wait for them."""
        if not (images := call.images):
            return
        template = self.templates[role]
        if template.image_problem:
            raise CallError(
                400,
                f"the role '{role}' was sent an image, and its policy "
                f"'{self.players[role].policy}' "
                f"{template.image_problem}; {ADVICE}, or send it no image",
                "messages",
            )
        try:
            await off_loop(call.num_bytes, template.look, images)
        except ImageError as error:
            raise CallError(400, str(error), "messages") from error

    def _understood(self, call: Call, role: str, prompt: Prompt) -> Asked:
        player, limits = self.players[role], self.limits
        if self.num_asked >= limits.max_calls:
            self._cut(f"cut after {limits.max_calls} calls (rollout.max_steps)")
        left = limits.max_episode_tokens - self.episode.num_tokens
        if left < 1:
            self._cut_by_tokens()
        left = left // call.num_replies or 1
        wanted = min(call.max_tokens or limits.max_reply_tokens, limits.max_reply_tokens)
        given = {"temperature": call.temperature, "seed": call.seed}
        asked = [name for name, value in given.items() if value is not None]
        aside = asked if player.uses_policy_sampling else []
        aside += ["tool_choice"] if prompt.calling and not self._narrows(role) else []
        own = None if player.uses_policy_sampling else call.seed
        question = TurnRequest(
            role=role,
            messages=prompt.messages,
            state=None,
            task_id=self.episode.task.id,
            seed=self._seed(prompt.digest) if own is None else own,
            num_samples=call.num_replies,
            max_tokens=min(wanted, left),
            seconds=limits.sampler_timeout,
            prompt_ids=prompt.ids,
            temperature=None if player.uses_policy_sampling else call.temperature,
            guide=prompt.guide,
            clock=self.clock,
        )
        return Asked(call, role, question, prompt, tuple(aside), left < wanted)

    def _narrows(self, role: str) -> bool:
        """Whether schemas narrow what the role can say."""
        return self.limits.guided or not self.players[role].uses_policy_sampling

    def _seed(self, key: bytes) -> int:
        """A seed that follows from what is asked, and from how often it was, never from when."""
        self._same[key] = self._same.get(key, -1) + 1
        return derive_seed(self.seed, "call", key.hex(), self._same[key])

    def _recorded(self, asked: Asked, turn: Turn) -> Reply:
        number = len(self.episode.turns)
        turn, stopped_by = cut_at_stop(turn, asked.call.stop, self.templates[asked.role])
        self.episode.turns.append(turn)
        extends = turn.links.extends = asked.prompt.extends
        if extends is not None:
            self._delivered.add(extends)  # the program sent it back, so it has it
        text, calls = calls_of(whole_letters(turn.text), asked.call)
        finish = "tool_calls" if calls else turn.finish
        name = f"chatcmpl-{secrets.token_hex(12)}"
        reply = Reply(name, turn, text, calls, finish, stopped_by)
        self._numbers[own_part(reply.id)] = number
        if turn.credit.failure is None and not stopped_by:
            self._prompts.add(asked.role, asked.prompt, reply, number)
        return reply

    def _latest(self, rewards: Rewards) -> int | None:
        """The last reply that a reward can be for: of the role, if it is paid for the reply."""
        roles = set(rewards.process)
        for number in range(len(self.episode.turns) - 1, -1, -1):
            turn = self.episode.turns[number]
            if number in self._delivered and (not roles or roles == {turn.role}):
                return number
        return None

    def _cut_by_tokens(self) -> None:
        limit = self.limits.max_episode_tokens
        self._cut(f"cut after {limit} tokens (rollout.max_episode_tokens)")

    def _cut(self, reason: str) -> None:
        if self.limits.exclude_cuts:
            self.episode.failure = Failed(reason, "limit")
        else:
            self.limit = reason
        raise CallError(400, f"the episode was ended: {reason}")


def own_part(reply: str) -> str:
    """A reply's id without what a dialect puts before it, as in `chatcmpl-` or `msg_`."""
    return re.split(r"[-_]", reply)[-1]


def cut_at_stop(turn: Turn, stop: Sequence[str], template: Template) -> tuple[Turn, str | None]:
    """Cut a turn at the first stop text in it: the turn, and that text, or None if there is none.
    The ids stay those of the engine, up to the one that completes the stop text."""
    found = [(at, text) for text in stop if (at := turn.text.find(text)) >= 0]
    if not found:
        return turn, None
    at, text = min(found)
    ids = turn.response_ids
    length = 1 + bisect.bisect_left(
        range(len(ids)), True, key=lambda last: text in template.decode(ids[: last + 1])
    )
    return replace(
        turn,
        response_ids=ids[:length],
        logprobs=None if turn.logprobs is None else turn.logprobs[:length],
        ends=None if turn.ends is None else np.minimum(turn.ends[:length], at).astype(np.int32),
        text=turn.text[:at],
        finish="stop",
    ), text


def merged(paid: Sequence[Rewards]) -> Rewards:
    """Several rewards for one step as one: levels add up."""

    def of(parts: Sequence[Mapping[str, Reward]]) -> dict[str, Reward]:
        roles = {role: None for part in parts for role in part}
        sums = {role: total(part.get(role) for part in parts) for role in roles}
        return {role: reward for role, reward in sums.items() if reward is not None}

    return Rewards(
        of([p.process for p in paid]), of([p.agent for p in paid]), total(p.team for p in paid)
    )
