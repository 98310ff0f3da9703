"""LLM judges, rule-based judges, panels and verifiers, and how their verdicts become rewards."""

from pettingllms.judges.base import Judge, JudgeContext, JudgeModel
from pettingllms.judges.batch import make_judges
from pettingllms.judges.bradley_terry import Strengths, strengths
from pettingllms.judges.rewards import (
    FIRST_REFERENCE,
    Verdicts,
    judge_all,
    reference_assignments,
    with_verdict,
)

__all__ = [
    "FIRST_REFERENCE",
    "Judge",
    "JudgeContext",
    "JudgeModel",
    "Strengths",
    "Verdicts",
    "judge_all",
    "make_judges",
    "reference_assignments",
    "strengths",
    "with_verdict",
]
