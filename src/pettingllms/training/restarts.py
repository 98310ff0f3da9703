"""How often a run goes back to its last checkpoint after a loss, and what it reports."""

from pettingllms.errors import ClusterError, LearnerLostError, StateLostError


class Restarts:
    """Restarts without a newer checkpoint in between; a run that goes on may have any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._saved = -1
        """Step of the checkpoint at the last restart."""

    def add(self, lost: StateLostError, saved: int) -> None:
        """Count a restart that goes back to a checkpoint; raise ClusterError if there were too
        many."""
        self._count = self._count + 1 if saved == self._saved else 1
        self._saved = saved
        if self._count > self._most:
            raise ClusterError(
                f"{lost}\nlearners or episodes were lost {self._count} times since the checkpoint "
                f"of step {saved}, more than cluster.max_restarts = {self._most} allows"
            ) from lost

    def describe(self, lost: StateLostError, step: int, back: int, seconds: float) -> str:
        """The message of a recovery, after `step` steps were done and the run went `back`."""
        repeated = (
            f"; it repeats {step - back} steps, which are later than its last checkpoint"
            if step > back
            else ""
        )
        what = "restarted" if isinstance(lost, LearnerLostError) else "reset"
        return (
            f"{lost}\nthe learner was {what} in {seconds:.1f} s, and the run continues with "
            f"step {back + 1}{repeated} (restart {self._count} of {self._most}; "
            "cluster.max_restarts)"
        )
