"""QMIX: the team's value is a monotonic function of its roles' (Rashid et al., 2018).

A sum says that what a role adds is worth the same whatever the others do. A network that mixes the
roles' values can say more, if no weight on them is negative: then what is better for a role is
never worse for the team, and each role may act on its own value. The weights depend on what the
roles see. A reply's advantage is as in VDN: what the team was paid, less what the mix expected with
the replies of all others known and this one not.
"""

from typing import ClassVar

from pettingllms.algos.base import Mixer
from pettingllms.algos.vdn import Vdn


class Qmix(Vdn):
    """A = R - mix(v of this role, q of the others), by a monotonic network."""

    mixer: ClassVar[Mixer | None] = "monotonic"
