"""The session of one episode: answers and records every call of its program.

A reply that the program did not receive completely is recorded but excluded from training, because
it did not affect the reward. The session counts calls when they arrive and when they are recorded;
the episode fails if the counts differ.
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
from pettingllms.gateway.tool_replies import complete_characters, reply_parts
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
    VersionRun,
    total,
)
from pettingllms.vision.families import ADVICE

OnAnswer = Callable[[Call, Answered, int, int], None]
"""Takes a call, its replies, and its start and end times in nanoseconds."""
UNDELIVERED = Failed(
    "the program disconnected before it received the complete reply", "environment"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the calls of one episode."""

    max_calls: int = 200
    max_reply_tokens: int = 512
    max_episode_tokens: int = 1_000_000
    sampler_timeout: float = 600.0
    guided: bool = False
    """Whether schemas also constrain replies of learning roles. Such replies are not trained on."""
    exclude_cuts: bool = True
    """Whether an episode fails when a limit cuts it (rollout.on_limit)."""
    reply_tokens: Mapping[str, int] = field(default_factory=dict)
    """Limits of single roles that are lower than `max_reply_tokens`."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A validated call: the request for the sampler, and what the record needs."""

    call: Call
    role: str
    request: TurnRequest
    prompt: Prompt
    ignored: tuple[str, ...]
    """Settings of the call that do not apply."""
    is_short: bool
    """Whether the episode's token budget is the tightest limit on the reply."""


@dataclass(slots=True)
class Session:
    """The open record of one episode."""

    episode: Episode
    players: Mapping[str, Player]
    roles: RoleMap
    templates: Mapping[str, Template]
    """Chat template of each role."""
    seed: int
    limits: Limits = field(default_factory=Limits)
    num_served: int = 0
    """Calls that were accepted."""
    num_recorded: int = 0
    """Calls that were recorded."""
    num_requested: int = 0
    """Replies requested from samplers, including those in progress."""
    is_closed: bool = False
    limit: str = ""
    """The limit that cut the episode. The session then rejects further calls."""
    cut_roles: tuple[str, ...] = ()
    """Roles whose replies the limit cut; empty if it cut the episode as a whole."""
    too_long: str = ""
    """Why the last call's prompt was too long, if earlier replies contributed to its length. The
    program may retry with a shorter prompt."""
    fatal: ClusterError | None = None
    """Why the engines stopped answering."""
    on_answer: OnAnswer | None = None
    """Called after every answered call."""
    clock: ServiceClock | None = None
    """Clock of the program. It stops while a call waits for an engine."""
    _prompts: Prompts = field(init=False)
    _repeats: dict[bytes, int] = field(default_factory=dict)
    """How often each prompt was repeated."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """Turn numbers by reply id without its prefix."""
    _delivered: set[int] = field(default_factory=set)
    _cut_turns: tuple[int, ...] = ()
    _posted: dict[int, list[Rewards]] = field(default_factory=dict)
    """Rewards that the program posted, by turn number."""

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.templates)

    async def answer(self, call: Call, bound: str | None) -> Answered:
        """Answer a call and record it."""
        self._require_open()
        self.num_served += 1
        is_prepared = False
        try:
            role = self.roles.of(call, bound)
            await self._check_images(call, role)
            make = self._prompts.make
            prompt = await off_loop(call.num_bytes, make, call, role, self._is_guided(role))
            self._require_open()
            prepared = self._prepare(call, role, prompt)
            is_prepared = True
            self.num_requested += prepared.request.num_samples
        finally:
            if not is_prepared:  # no sampler was called
                self.num_served -= 1
        start = time.time_ns()
        try:
            turns = await sample_turns(self.players[prepared.role], prepared.request)
        except ClusterError as error:
            self.fatal = error
            raise CallError(503, "no inference engine is available") from error
        if self.is_closed:
            raise CallError(401, "the episode ended before the reply was complete")
        self.num_recorded += 1
        replies = [self._record(prepared, turn) for turn in turns]
        turns = [reply.turn for reply in replies]
        self._apply_limits(prepared, turns)
        failure = next(
            (turn.credit.failure for turn in turns if turn.credit.failure is not None), None
        )
        if failure is not None:
            raise CallError(400 if failure.owner == "limit" else 503, failure.reason)
        answered = Answered(prepared.role, replies, prepared.ignored)
        if self.on_answer is not None:
            self.on_answer(call, answered, start, time.time_ns())
        return answered

    def _apply_limits(self, prepared: PreparedCall, turns: Sequence[Turn]) -> None:
        """End the episode if a limit cut one of its latest replies."""
        if self.limit:
            return  # a concurrent call ended it
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
            self.cut_roles = (prepared.role,)
            self._cut(reason)
        if prepared.is_short and any(turn.finish == "length" for turn in turns):
            self._cut_by_tokens()
        self._cut_turns = ()

    def end_at_limit(self, rewards: Rewards) -> None:
        """Add the final step of a cut episode."""
        episode, index = self.episode, len(self.episode.steps)
        episode.steps.append(Step(episode.last, self._cut_turns, rewards, limit=self.limit))
        episode.last = index
        for number in self._cut_turns:
            episode.turns[number].links.step = index

    def deliver(self, answered: Answered) -> None:
        """Mark replies as received by the program, so that they enter the episode."""
        self._delivered.update(self._numbers[bare_id(reply.id)] for reply in answered.replies)

    def add_rewards(self, rewards: Rewards, reply: str | None = None) -> None:
        """Add rewards that the program posts for the reply with that id, or for the latest."""
        self._require_open()
        unknown = {*rewards.process, *rewards.agent} - set(self.roles.roles)
        if unknown:
            raise CallError(400, f"this program has no role '{min(unknown)[:40]}'", "role")
        at = self._latest(rewards) if reply is None else self._numbers.get(bare_id(reply))
        if at is None and reply is not None:
            raise CallError(404, "this episode has no reply with that id", "reply")
        if at is None or rewards.process.keys() - {self.episode.turns[at].role}:
            raise CallError(409, "no delivered reply to reward yet")
        self._posted.setdefault(at, []).append(rewards)

    def close(self) -> None:
        """Complete the episode: add one step per delivered reply."""
        self.is_closed = True
        episode = self.episode
        for number, turn in enumerate(episode.turns):
            if number in self._cut_turns:
                continue
            if turn.credit.failure is None and number not in self._delivered:
                turn.credit.failure = UNDELIVERED
            if turn.credit.failure is not None:
                continue
            turn.links.step = len(episode.steps)
            step = Step(episode.last, (number,), merged(self._posted.pop(number, [])))
            step.metrics = {"new_segment": float(turn.links.extends is None)}
            episode.steps.append(step)
            episode.last = turn.links.step
        if self.num_served != self.num_recorded:
            episode.failure = Failed(
                f"{self.num_served} calls were served and {self.num_recorded} recorded: the "
                "program ended before all replies arrived; await every call, and raise the "
                "client's timeout, because clients retry calls that time out",
                "environment",
            )
        elif episode.last is None and episode.failure is None and not self.limit:
            episode.failure = Failed("the program received no reply from any role", "environment")
        elif self._posted and episode.failure is None:
            lost = "rewards were posted for a reply that the program did not receive completely"
            episode.failure = Failed(lost, "environment")

    def _require_open(self) -> None:
        if self.is_closed:
            raise CallError(401, "the episode is over: calls and rewards are no longer accepted")
        if self.limit:
            raise CallError(400, f"the episode has ended: {self.limit}")

    async def _check_images(self, call: Call, role: str) -> None:
        """Reject images that the role's policy cannot read. A thread prepares the others."""
        if not (images := call.images):
            return
        template = self.templates[role]
        if template.image_problem:
            raise CallError(
                400,
                f"the role '{role}' received an image, but its policy "
                f"'{self.players[role].policy}' {template.image_problem}; "
                f"{ADVICE}, or send no images",
                "messages",
            )
        try:
            await off_loop(call.num_bytes, template.prepare_images, images)
        except ImageError as error:
            raise CallError(400, str(error), "messages") from error

    def _prepare(self, call: Call, role: str, prompt: Prompt) -> PreparedCall:
        player, limits = self.players[role], self.limits
        if self.num_requested >= limits.max_calls:
            self._cut(f"cut after {limits.max_calls} calls (rollout.max_steps)")
        left = limits.max_episode_tokens - self.episode.num_tokens
        if left < 1:
            self._cut_by_tokens()
        left = left // call.num_replies or 1
        longest = limits.reply_tokens.get(role, limits.max_reply_tokens)
        wanted = min(call.max_tokens or longest, longest)
        given = {"temperature": call.temperature, "seed": call.seed}
        sampling = [name for name, value in given.items() if value is not None]
        ignored = sampling if player.uses_policy_sampling else []
        ignored += ["tool_choice"] if prompt.calling and not self._is_guided(role) else []
        seed = None if player.uses_policy_sampling else call.seed
        request = TurnRequest(
            role=role,
            messages=prompt.messages,
            state=None,
            task_id=self.episode.task.id,
            seed=self._seed(prompt.digest) if seed is None else seed,
            num_samples=call.num_replies,
            max_tokens=min(wanted, left),
            seconds=limits.sampler_timeout,
            prompt_ids=prompt.ids,
            temperature=None if player.uses_policy_sampling else call.temperature,
            guide=prompt.guide,
            clock=self.clock,
        )
        return PreparedCall(call, role, request, prompt, tuple(ignored), left < wanted)

    def _is_guided(self, role: str) -> bool:
        """Whether the sampler constrains the role's replies to schemas."""
        return self.limits.guided or not self.players[role].uses_policy_sampling

    def _seed(self, key: bytes) -> int:
        """A seed derived from the prompt and its number of repeats, not from the order of calls."""
        self._repeats[key] = self._repeats.get(key, -1) + 1
        return derive_seed(self.seed, "call", key.hex(), self._repeats[key])

    def _record(self, prepared: PreparedCall, turn: Turn) -> Reply:
        number = len(self.episode.turns)
        turn, stopped_by = cut_at_stop(turn, prepared.call.stop, self.templates[prepared.role])
        self.episode.turns.append(turn)
        extends = turn.links.extends = prepared.prompt.extends
        if extends is not None:
            self._delivered.add(extends)  # the program sent it back, so it received it
        template, whole = self.templates[prepared.role], complete_characters(turn.text)
        marked = whole if stopped_by else template.marked(turn)
        text, calls = reply_parts(whole, marked, template.call_format, prepared.call)
        finish = "tool_calls" if calls else turn.finish
        name = f"chatcmpl-{secrets.token_hex(12)}"
        reply = Reply(name, turn, text, calls, finish, stopped_by)
        self._numbers[bare_id(reply.id)] = number
        if turn.credit.failure is None and not stopped_by:
            self._prompts.add(prepared.role, prepared.prompt, reply, number)
        return reply

    def _latest(self, rewards: Rewards) -> int | None:
        """The latest delivered reply; for a process reward, the latest of its role."""
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
        raise CallError(400, f"the episode has ended: {reason}")


def bare_id(reply: str) -> str:
    """A reply's id without its dialect's prefix, such as `chatcmpl-` or `msg_`."""
    return re.split(r"[-_]", reply)[-1]


def cut_at_stop(turn: Turn, stop: Sequence[str], template: Template) -> tuple[Turn, str | None]:
    """Cut a turn at its first stop string. Returns the turn and that string, or None.
    The sampled ids are kept up to the one that completes the stop string."""
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
        later_versions=later_versions(turn, length),
    ), text


def later_versions(turn: Turn, length: int) -> tuple[VersionRun, ...]:
    """The later versions of a turn of which the first `length` tokens are kept."""
    kept, start = [], 0
    for version, num_tokens in turn.version_runs:
        if start < length:
            kept.append(VersionRun(version, min(num_tokens, length - start)))
        start += num_tokens
    return tuple(kept[1:])


def merged(rewards: Sequence[Rewards]) -> Rewards:
    """Add up rewards of one step, per level."""

    def of(parts: Sequence[Mapping[str, Reward]]) -> dict[str, Reward]:
        roles = {role: None for part in parts for role in part}
        sums = {role: total(part.get(role) for part in parts) for role in roles}
        return {role: reward for role, reward in sums.items() if reward is not None}

    return Rewards(
        of([r.process for r in rewards]),
        of([r.agent for r in rewards]),
        total(r.team for r in rewards),
    )
