"""Grading of math answers in separate, sandboxed processes."""

from pettingllms.grading.grader import (
    NO_VERDICT,
    Grader,
    Verdict,
    check_installed,
    grade,
    refusal,
    start_grader,
)

__all__ = ["NO_VERDICT", "Grader", "Verdict", "check_installed", "grade", "refusal", "start_grader"]
