"""Chance for libraries that take it from the process.

Such a game calls `random` or numpy wherever it likes. For the time of one call both are given a
seed of the play's own, and afterwards their states are put back: the call is a function of the
play, and nobody else's chance depends on it.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let everything inside draw from this seed."""
    with _ONE_AT_A_TIME:
        kept, kept_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(kept_numpy)
