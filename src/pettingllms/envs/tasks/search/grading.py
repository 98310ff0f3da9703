"""Grade short answers: exact match and word-level F1 (Rajpurkar et al., 2016)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Lowercase text without punctuation, articles and extra whitespace."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def is_exact(answer: str, truths: Sequence[str]) -> bool:
    """Whether an answer matches one of the reference answers."""
    return bool(normal(answer)) and normal(answer) in [normal(truth) for truth in truths]


def f1(answer: str, truths: Sequence[str]) -> float:
    """Word overlap with the closest reference answer."""
    return max(_f1(normal(answer).split(), normal(truth).split()) for truth in truths)


def _f1(one: list[str], other: list[str]) -> float:
    num_common = sum((Counter(one) & Counter(other)).values())
    return 2 * num_common / (len(one) + len(other)) if num_common else 0.0
