r"""Problems with one right answer: what the environments share that are asked such.

An answer is the last `\boxed{...}` of a reply, as models of mathematics have learnt to give it. It
is shown to other roles, so it has the signs of mathematics alone, and is short; whatever else it
holds, the whole reply is refused.
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
MAX_LETTERS = 120
MARKUP = re.compile(r"<\||\|>|</|<\w*>|\[/|\\boxed")


class ProblemConfig(EnvConfig):
    """Options of environments that ask problems."""

    data: str = ""
    """Where problems come from: empty for arithmetic word problems made on the spot, `statements`
    for inference made on the spot, `NAME:FILE` for a file of a published set (gsm8k, math, aime,
    olympiadbench, dapo_math, svamp, anli), `NAME` for the same from the hub, or
    `reasoning_gym:NAME`."""
    test_data: str = ""
    """The same to test on; it must share no problem with `data`. Empty: a part of `data`."""
    test_share: float = Field(default=0.1, gt=0, lt=1)
    """The part of one file that is kept to test on, chosen by what is asked."""
    num_tasks: int | None = Field(default=None, ge=1)
    """Problems in a split, at most. Left out: all of a file, or 1024 that are made."""
    num_steps: int = Field(default=2, ge=1, le=6)
    """Steps that a made problem takes to solve."""
    illegal_reward: float = -0.1
    """Process reward of a reply that is refused."""


def problem_tasks(config: ProblemConfig) -> ProblemTasks:
    """The problems that a configuration asks for, where there is what grades them."""
    check_installed()
    return ProblemTasks(
        config.data, config.test_data, config.num_tasks, config.num_steps, config.test_share
    )


def boxed_in(reply: str, problem: Problem, terse: bool) -> str:
    """The answer of a reply, fit to be shown to others; BadReply with the reason."""
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
    """An answer in one line; BadReply if it is too long or holds what is no answer."""
    answer = " ".join(text.split())
    if len(answer) > MAX_LETTERS:
        raise BadReply(f"an answer has at most {MAX_LETTERS} letters")
    if not SIGNS.issuperset(answer) or MARKUP.search(answer):
        raise BadReply("an answer has letters, digits and signs of mathematics alone")
    return answer


def judged(problem: Problem, answer: str) -> Verdict:
    """What there is to say of an answer to a problem."""
    if problem.choices:
        return Verdict(right=answer == problem.answer)
    return grade(answer, problem.answer)


def spelt(answer: str) -> str:
    """An answer in the form that others of the same spelling have, whether or not they name its
    unit; nothing is worked out."""
    taken_apart = written(answer)
    return "".join(taken_apart.text.split()) + "%" * taken_apart.percent


def other_answer(problem: Problem, rng: random.Random) -> str:
    """An answer that could be right, and is not: for scripts and for hidden truths."""
    if problem.choices:
        return rng.choice([choice for choice in problem.choices if choice != problem.answer])
    known = int(problem.answer) if re.fullmatch(r"-?\d{1,15}", problem.answer) else 0
    return str(known + rng.choice([-10, -2, -1, 1, 2, 10]))


def in_box(answer: str, terse: bool = False) -> str:
    """A reply that gives this answer and nothing else; one that has a box already stays."""
    return answer if terse or "\\boxed" in answer else f"\\boxed{{{answer}}}"
