"""Run model-generated programs in the sandbox, with one retry if a program was killed.

A program can kill itself, but the kernel also kills sandboxes first when the machine runs out of
memory. The latter is not the reply's fault, so a killed program runs once more. A reply whose
program is killed twice is scored by that outcome.
"""

from pettingllms.sandbox import Limits, Outcome, Program, open_sandbox

NUM_TRIES = 2


def run_sandboxed(program: Program, limits: Limits) -> Outcome:
    """Run a program until it ends, hits a limit, or is killed twice."""
    for _ in range(NUM_TRIES):
        outcome = open_sandbox().run(program, limits)
        if outcome.end != "killed":
            break
    return outcome
