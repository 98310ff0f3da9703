"""Hardware design: a designer writes a Verilog module, a bencher a test bench for it.

The bench runs on the design, both roles see its output, and the designer may revise. A bench that
passes the design ends the episode. No role sees the results of the hidden bench.

Each reply gets a process reward at once for improving its own artifact. A design is scored by the
inputs that it handles correctly. A bench is scored by passing a known-good design and none of the
known-bad ones. So a bench that always passes or always fails earns little, and longer episodes earn
nothing extra.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.verilog import players
from pettingllms.envs.tasks.verilog.modules import MODULES, Module
from pettingllms.envs.tasks.verilog.simulate import (
    BENCH_WORDS,
    DESIGN_WORDS,
    checked_source,
    require_icarus,
    share_right,
    verdict,
)
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.fences import blocks_in
from pettingllms.envs.toolkit.tool_texts import shown
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user

DESIGNER, BENCHER, ENGINEER = "designer", "bencher", "engineer"
LANGUAGES = ("verilog", "systemverilog", "v", "sv", "")
HOW_TO_ANSWER = "You may think first. Give the code once and whole, in one ```verilog block."


class VerilogConfig(EnvConfig):
    """Options of `verilog-v1`."""

    max_rounds: int = Field(default=2, ge=2)
    """Maximum number of designs; a bench follows each but the last."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply; the design or bench in force stays."""


@dataclass(frozen=True, slots=True)
class Work:
    """A problem, and the design and bench in force."""

    module: str
    width: int
    part: str = DESIGNER
    """The part that acts now."""
    round: int = 1
    design: str = ""
    bench: str = ""
    report: str = ""
    """Output of the bench in force on the design in force."""
    trouble: str = ""
    """Why the last reply, or the build of its design or bench, failed."""
    design_score: float = 0.0
    bench_score: float = 0.0
    over: bool = False


class Verilog(Environment[Work, VerilogConfig]):
    """Sequential and cooperative. Solo, the one role `engineer` writes both."""

    id = "verilog-v1"
    Config = VerilogConfig
    players = players.PLAYERS
    limit_level = "team"
    late_rewards = True  # the team is rewarded at the end
    blocking = True
    runs_programs = True

    @property
    def roles(self) -> tuple[str, ...]:
        return (ENGINEER,) if self.config.solo else (DESIGNER, BENCHER)

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        require_icarus()
        return [
            Task(f"{split}-{module.name}-{width}", {"module": module.name, "width": width})
            for module in MODULES.values()
            for width in module.widths
            if module.held_out == (split == "test")
        ]

    def reset(self, task: Task, seed: int) -> Work:
        return Work(task.data["module"], task.data["width"])

    def acting(self, state: Work) -> tuple[str, ...]:
        return () if state.over else (self._role(state.part),)

    def observe(self, state: Work, role: str) -> Sequence[Message]:
        module, part = MODULES[state.module], state.part if role == ENGINEER else role
        if self.config.terse:
            return [user(_tersely(module, state, part))]
        return [
            system(f"{_part(role, part, module)} {HOW_TO_ANSWER}"),
            user("\n\n".join([_problem(module, state), *_situation(state, part)])),
        ]

    def step(self, state: Work, replies: Mapping[str, str]) -> StepResult[Work]:
        role = self._role(state.part)
        try:
            code = _code_in(replies[role], self.config.terse)
            after = self._benched(state, code) if state.part == BENCHER else _designed(state, code)
            illegal = False
        except BadReply as refusal:
            after, illegal = replace(state, trouble=str(refusal)), True
        gained = after.design_score + after.bench_score - state.design_score - state.bench_score
        after = self._next(after)
        process = {role: Scored(self.config.illegal_reward if illegal else gained)}
        rewards = Rewards(process, self._agent(after), _team(after))
        metrics = {
            "illegal": float(illegal),
            "design_score": after.design_score,
            "bench_score": after.bench_score,
        }
        return StepResult(after, rewards, metrics)

    def success(self, state: Work, role: str) -> bool:
        return state.design_score == 1.0

    def redeal(self, state: Work, role: str, rng: random.Random) -> Work:
        """Other scores: observations do not show them."""
        return replace(state, design_score=rng.random(), bench_score=rng.random())

    def reply_of(self, typed: str) -> str:
        return typed if self.config.terse or "```" in typed else f"```verilog\n{typed}\n```"

    def hint(self, state: Work, role: str) -> str:
        return "a test bench" if state.part == BENCHER else "a module"

    def _role(self, part: str) -> str:
        return ENGINEER if self.config.solo else part

    def _benched(self, state: Work, code: str) -> Work:
        bench = checked_source(code, BENCH_WORDS)
        score, trouble = _bench_score(MODULES[state.module], state.width, bench)
        after = replace(state, bench=bench, bench_score=score, trouble=trouble, report="")
        if not state.design:
            return after
        passes, run = verdict(bench, state.design)
        outcome = {None: "It did not run to its end.", True: "It passed.", False: "It failed."}[
            passes
        ]
        report = f"{outcome} Its output:\n{shown(run.output, 400) or '(nothing)'}"
        return replace(after, report=report, over=passes is True)

    def _next(self, state: Work) -> Work:
        """The state with the next part; the episode ends with the last design."""
        if state.part == BENCHER:
            return replace(state, part=DESIGNER, round=state.round + (not state.over))
        return replace(state, part=BENCHER, over=state.round >= self.config.max_rounds)

    def _agent(self, state: Work) -> Mapping[str, Reward]:
        """At the end, for each role: whether its own artifact is flawless."""
        if not state.over or self.config.solo:
            return {}
        own = {DESIGNER: state.design_score, BENCHER: state.bench_score}
        return {role: Scored(float(score == 1.0)) for role, score in own.items()}


def _designed(state: Work, code: str) -> Work:
    design = checked_source(code, DESIGN_WORDS)
    seed = derive_seed("verilog", state.module, state.width)
    share, trouble = share_right(state.module, state.width, seed, design)
    score = 0.0 if trouble else 1.0 if share == 1.0 else 0.1 + 0.8 * share
    return replace(state, design=design, design_score=score, trouble=trouble, report="")


def _bench_score(module: Module, width: int, bench: str) -> tuple[float, str]:
    """1 if a bench passes the known-good design and none of the known-bad ones; and why it does
    not run."""
    passes, run = verdict(bench, module.good(width))
    if passes is None:
        return 0.0, "the bench does not run to its end" if run.built else run.output
    if not passes:
        return 0.1, ""
    bad = module.bad(width)
    num_found = sum(verdict(bench, design)[0] is False for design in bad)
    return 0.2 + 0.8 * num_found / len(bad), ""


def _team(state: Work) -> Reward | None:
    return Scored(float(state.design_score == 1.0)) if state.over else None


def _code_in(reply: str, terse: bool) -> str:
    if terse:
        if "```" in reply or "<answer>" in reply:
            raise BadReply("the reply is to be code alone")
        if not reply.strip():
            raise BadReply("the reply is empty")
        return reply
    blocks = [inside for language, inside in blocks_in(reply) if language in LANGUAGES]
    if len(blocks) != 1:
        raise BadReply(f"{len(blocks)} ```verilog blocks in the reply; give one")
    return blocks[0]


def _part(role: str, part: str, module: Module) -> str:
    team = "A designer writes a Verilog module and a bencher writes a test bench for it."
    who = f"You are the {role}. {team}" if role != ENGINEER else "You write hardware in Verilog."
    if part == DESIGNER:
        return (
            f"{who} Write the module as the statement says, with exactly these ports; it must be "
            "synthesizable. Of system functions only "
            f"{', '.join(sorted(DESIGN_WORDS))} are allowed."
        )
    return (
        f"{who} Write a test bench: a module called bench, without ports, that makes one "
        f"{module.name}, drives its inputs, compares its outputs with what the statement says, "
        "prints FAIL for each that is wrong, prints PASS at the end if none was, and calls "
        "$finish. It must pass every right design and no wrong one."
    )


def _problem(module: Module, state: Work) -> str:
    return f"{module.statement_at(state.width)}\n\n{module.header(state.width)}"


def _situation(state: Work, part: str) -> list[str]:
    lines = []
    if state.design:
        lines.append(f"The design:\n```verilog\n{shown(state.design, 4000)}```")
    if state.bench:
        lines.append(f"The bench:\n```verilog\n{shown(state.bench, 4000)}```")
    if state.report:
        lines.append(f"The bench was run on the design. {state.report}")
    if state.trouble:
        lines.append(f"The last reply did not work: {shown(state.trouble, 400)}")
    ask = "The play is over." if state.over else f"Write the {_thing(part)}."
    return [*lines, ask]


def _thing(part: str) -> str:
    return "bench" if part == BENCHER else "module"


def _tersely(module: Module, state: Work, part: str) -> str:
    lines = [f"{_thing(part)} {state.round}", module.header(state.width)]
    if part == BENCHER or state.round > 1:
        lines += [shown(state.design, 4000), shown(state.report, 400)]
    return "\n".join(line for line in lines if line)
