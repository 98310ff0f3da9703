r"""Building blocks for environments whose problems have one correct answer.

The answer is the last `\boxed{...}` of a reply, the form that math models are trained on. Other
roles read it in their prompts, so it must be short and contain only letters, digits and math
symbols. Otherwise the environment rejects the whole reply.
"""

import random
import re
import string

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets import Problem
from pettingllms.datasets.math_sets import last_boxed
from pettingllms.datasets.splits import ProblemTasks
from pettingllms.envs.toolkit.answers import CLOSE, OPEN, BadReply
from pettingllms.grading import Verdict, check_installed, grade
from pettingllms.grading.forms import written

HOW_TO_BOX = r"You may think first. Give your answer last, as \boxed{...}."
SIGNS = frozenset(string.ascii_letters + string.digits + r" +-*/=^_{}()[]\,.:;!|&%$'~<>°π")
MAX_LETTERS = 240
"""The longest answer of a published set (OlympiadBench) has 198."""
MARKUP = re.compile(r"<\||\|>|</|<\w*>|\[/|\\boxed")


class ProblemConfig(EnvConfig):
    """Options of environments that ask problems."""

    data: str = ""
    """Source of the problems: empty for generated arithmetic word problems, `statements` for
    generated inference problems, `sums` for generated sums of digits, a name of `pettingllms data
    list` such as `gsm8k`, `hf:OWNER/NAME`, a file, or `reasoning_gym:NAME`."""
    test_data: str = ""
    """Source of the test problems, in the same form. It must share no problem with `data`.
    Empty: hold out a part of `data`, or all of it if it is a test set."""
    test_share: float = Field(default=0.1, gt=0, lt=1)
    """Fraction of one file that is held out for testing, chosen by a hash of the question."""
    num_tasks: int | None = Field(default=None, ge=1)
    """Maximum number of problems per split. Unset: all problems of a file, or 1024 generated
    ones."""
    num_steps: int = Field(default=2, ge=1, le=6)
    """Number of reasoning steps that a generated problem needs."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply."""
    judged: bool = False
    """Whether a judge rewards answers instead of the grader: [judge], or the grader as its `rule`.
    The correct answer then affects metrics and success only."""


def problem_tasks(config: ProblemConfig) -> ProblemTasks:
    """The problems of a configuration; raises ConfigError if the grader is not installed."""
    check_installed()
    return ProblemTasks(
        config.data, config.test_data, config.num_tasks, config.num_steps, config.test_share
    )


def boxed_in(reply: str, problem: Problem, terse: bool) -> str:
    """The answer of a reply, safe to show to other roles; BadReply with the reason."""
    if terse and (OPEN in reply or CLOSE in reply):
        raise BadReply("an answer stands alone here, without tags")
    answer = reply.strip() if terse else last_boxed(reply)
    if not answer:
        raise BadReply("the reply is empty" if terse else r"no \boxed{...} in the reply")
    answer = checked_answer(answer)
    if not problem.choices:
        return answer
    chosen = re.sub(r"\\text\w*\{([^{}]*)\}", r"\1", answer).strip(" .()").casefold()
    if chosen not in problem.choices:
        raise BadReply(f"the answer is none of {', '.join(problem.choices)}")
    return chosen


def checked_answer(text: str) -> str:
    """An answer on one line; BadReply if it is too long or contains other symbols."""
    answer = " ".join(text.split())
    if len(answer) > MAX_LETTERS:
        raise BadReply(f"an answer has at most {MAX_LETTERS} letters")
    if not SIGNS.issuperset(answer) or MARKUP.search(answer):
        raise BadReply("an answer has letters, digits and signs of mathematics alone")
    return answer


def verdict_on(problem: Problem, answer: str) -> Verdict:
    """The verdict on an answer to a problem."""
    if problem.choices:
        return Verdict(right=answer == problem.answer)
    return grade(answer, problem.answer)


def normalized_answer(answer: str) -> str:
    """The normalized spelling of an answer, without its unit. Nothing is evaluated."""
    taken_apart = written(answer)
    return "".join(taken_apart.text.split()) + "%" * taken_apart.percent


def other_answer(problem: Problem, rng: random.Random) -> str:
    """A plausible but incorrect answer, for scripted players and for `redeal`."""
    if problem.choices:
        return rng.choice([choice for choice in problem.choices if choice != problem.answer])
    known = int(problem.answer) if re.fullmatch(r"-?\d{1,15}", problem.answer) else 0
    return str(known + rng.choice([-10, -2, -1, 1, 2, 10]))


def in_box(answer: str, terse: bool = False) -> str:
    """A reply with only this answer; one that already has a box is returned unchanged."""
    return answer if terse or "\\boxed" in answer else f"\\boxed{{{answer}}}"
