"""Programs of replies in the sandbox, run again if something killed them.

A program can kill itself, and the kernel kills sandboxes first when the machine has no memory left.
The second is no fault of the reply. So what was killed is run once more: a reply whose program is
killed twice is scored as it is.
"""

from pettingllms.sandbox import Limits, Outcome, Program, open_sandbox

NUM_TRIES = 2


def run_sandboxed(program: Program, limits: Limits) -> Outcome:
    """Run to the end, or to a limit, or to the second time that it was killed."""
    for _ in range(NUM_TRIES):
        outcome = open_sandbox().run(program, limits)
        if outcome.end != "killed":
            break
    return outcome
