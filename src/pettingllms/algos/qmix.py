"""QMIX: the team's value is a monotonic function of its roles' (Rashid et al., 2018).

A sum says that what a role adds is worth the same whatever the others do. A network that mixes the
roles' values can say more, if no weight on them is negative: then what is better for a role is
never worse for the team, and each role may act on its own value. The weights depend on what the
roles see. A reply's advantage is what it changes in the mix: its role's value before the reply is
replaced by the one after it, while the others stand where they were expected to be.
"""

from typing import ClassVar

from pettingllms.algos.base import Mixer
from pettingllms.algos.vdn import Vdn
from pettingllms.types import Turn


class Qmix(Vdn):
    """A = mix(q of this role, v of the others) - mix(v of all), by a monotonic network."""

    mixer: ClassVar[Mixer | None] = "monotonic"

    def advantage_of(self, turn: Turn) -> float:
        expected, with_reply = turn.mixed or (0.0, 0.0)
        return with_reply - expected
