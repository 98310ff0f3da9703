"""Submissions: what an environment hands to a judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEAM = ""
"""Denotes the whole team in place of a role."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One answer to judge. Judges compare two submissions only if their questions are equal."""

    question: str
    """The task, as the judge reads it."""
    answer: str
    """The answer, which may be entirely model-generated."""
    criteria: str = ""
    """What a judge should load_image at."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like facts for rule judges, never shown to an LLM judge."""
