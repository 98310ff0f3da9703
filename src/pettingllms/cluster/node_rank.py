"""A rank of a learner as a Ray actor, which knows its node."""

import faulthandler
import os
import signal
from dataclasses import replace

from pettingllms.cluster.nodes import ActorPlace, own_place
from pettingllms.learners.rank import Rank
from pettingllms.runtime.progress import show_progress_in


class NodeRank(Rank):
    """A rank whose place, progress and stacks others on its node can see."""

    def place(self) -> ActorPlace:
        """Where this rank runs. From now on it shows its progress in a file beside its log."""
        place = own_place()
        if place.log is None:
            return place
        faulthandler.register(signal.SIGUSR2)
        progress = place.log.with_name(f"pettingllms-progress-{os.getpid()}")
        show_progress_in(progress)
        return replace(place, progress=progress)
