"""What a play lays before a judge: a question, what it came to, and what only rules may know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEAM = ""
"""In the place of a role, for what all roles made together."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One answer to be judged. Two are compared only if their questions are the same."""

    question: str
    """What was asked for, as a judge reads it."""
    answer: str
    """What was made of it; a model may have written every letter."""
    criteria: str = ""
    """What a judge should look at."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like: what rules may know and no model that judges is ever shown."""
