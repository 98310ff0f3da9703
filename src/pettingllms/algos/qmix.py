"""QMIX: the value of the team is a monotonic function of the values of its roles (Rashid et al.,
2018).

A sum assumes that the contribution of a role does not depend on the others. A mixing network is
more expressive. Its weights on the roles' values are nonnegative, so a better value of a role is
never worse for the team, and each role may act on its own value. The weights depend on the
observations of the roles. Advantages are those of VDN: the return of the team minus the mixed value
with the replies of all other roles known and this one unknown.
"""

from typing import ClassVar

from pettingllms.algos.base import Mixer
from pettingllms.algos.vdn import Vdn


class Qmix(Vdn):
    """A = R - mix(v of this role, q of the others), with a monotonic mixing network."""

    mixer: ClassVar[Mixer | None] = "monotonic"
