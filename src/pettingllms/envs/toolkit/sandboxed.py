"""Run model-generated programs in the sandbox, with one retry if the machine may have ended them.

A program can kill itself, but the kernel also kills sandboxes first when the machine runs out of
memory. A program can wait until its timeout, but on a busy machine it may also not have been given
the CPU. Neither is the reply's fault, so such a program runs once more. A reply whose program ends
in the same way twice is scored by that outcome.
"""

from pettingllms.sandbox import Limits, Outcome, Program, open_sandbox

NUM_TRIES = 2
BUSY_SHARE = 0.5
"""A program that timed out with less than this share of its time on the CPU may run again."""


def run_sandboxed(program: Program, limits: Limits) -> Outcome:
    """Run a program until it ends, hits a limit by itself, or was stopped twice."""
    for _ in range(NUM_TRIES):
        outcome = open_sandbox().run(program, limits)
        if outcome.end != "killed" and not _was_starved(outcome, limits):
            break
    return outcome


def _was_starved(outcome: Outcome, limits: Limits) -> bool:
    """Whether a program timed out with little CPU time: it waited, or the machine was busy."""
    used = outcome.cpu_seconds
    return outcome.end == "timeout" and used is not None and used < BUSY_SHARE * limits.seconds
