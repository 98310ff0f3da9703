"""Grading mathematics outside of our processes."""

from pettingllms.grading.grader import Grader, Verdict, grade, refusal, same_text

__all__ = ["Grader", "Verdict", "grade", "refusal", "same_text"]
