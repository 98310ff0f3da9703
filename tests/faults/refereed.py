"""Digits whose every step asks a program that takes a moment, and that a test may stop."""

import subprocess
from collections.abc import Mapping

from digits import Digits, State

from pettingllms import StepResult

REFEREE = "pettingllms-referee"


class Refereed(Digits):
    id = "refereed-v1"
    blocking = True

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult:
        subprocess.run([REFEREE, "0.3"], executable="/bin/sleep", check=True)
        return super().step(state, replies)
