"""Grading mathematics outside of our processes."""

from pettingllms.grading.grader import Grader, Verdict, grade, refusal

__all__ = ["Grader", "Verdict", "grade", "refusal"]
