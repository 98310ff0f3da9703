"""Answers to problems as submissions: a judge reads the question and the whole reply.

The correct answer is a fact for the environment's rule. Judges that are models never receive facts.
"""

from pettingllms.datasets import Problem
from pettingllms.envs.toolkit.boxed_answers import verdict_on
from pettingllms.types import Reward, Submission
from pettingllms.types.rewards import SubmissionLevel

CRITERIA = "The answer is correct or wrong. Look at nothing else."


def answer_submission(
    problem: Problem, answer: str, reply: str, terse: bool, level: SubmissionLevel = "agent"
) -> Submission:
    """A reply with an answer, for a judge."""
    question = (problem.short if terse else "") or problem.question
    facts = {"answer": answer, "truth": problem.answer, "choices": list(problem.choices)}
    return Submission(question, reply, CRITERIA, facts, level)


def graded(submission: Submission) -> Reward:
    """The rule: 1 for the correct answer, 0 for a wrong one."""
    facts = submission.facts
    problem = Problem("", submission.question, facts["truth"], tuple(facts["choices"]))
    return verdict_on(problem, facts["answer"]).reward()
