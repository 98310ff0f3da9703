"""What an environment's own judge says: parts with a name each, from 0 to 1, and one number."""

from collections.abc import Mapping

from pettingllms.errors import nearest
from pettingllms.types import Failed, Reward, Scored


def told(parts: Mapping[str, float], part: str, whole: float) -> Reward:
    """One part, or the whole if none is named."""
    if part and part not in parts:
        return Failed(f"the rule has no part '{part}'; {nearest(part, parts)}", "judge")
    return Scored(parts[part] if part else whole)
