"""Judges: who says how good an answer is, and what follows from many such words."""

from pettingllms.judges.base import Judge, JudgeContext, JudgeModel
from pettingllms.judges.batch import make_judges
from pettingllms.judges.bradley_terry import Strengths, strengths
from pettingllms.judges.references import FIRST_PLAY, reference_assignments
from pettingllms.judges.rewards import Verdicts, judge_all

__all__ = [
    "FIRST_PLAY",
    "Judge",
    "JudgeContext",
    "JudgeModel",
    "Strengths",
    "Verdicts",
    "judge_all",
    "make_judges",
    "reference_assignments",
    "strengths",
]
