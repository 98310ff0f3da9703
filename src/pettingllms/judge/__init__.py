"""Judges: who says how good an answer is, and what follows from many such words."""

from pettingllms.judge.base import Hall, Judge, Voice
from pettingllms.judge.bradley_terry import Strengths, strengths
from pettingllms.judge.court import make_judges
from pettingllms.judge.preferences import Verdicts, judge_all
from pettingllms.judge.references import FIRST_PLAY, reference_lineups

__all__ = [
    "FIRST_PLAY",
    "Hall",
    "Judge",
    "Strengths",
    "Verdicts",
    "Voice",
    "judge_all",
    "make_judges",
    "reference_lineups",
    "strengths",
]
