"""Problems of reasoning-gym (Stojanovski et al., 2025), an optional dependency.

Its generators cover a hundred kinds of problems. Those with one short answer work here and are
graded as math or as text.
"""

from functools import lru_cache
from typing import Any

from pettingllms.datasets.problems import Problem
from pettingllms.errors import DataError

NUM_AT_ONCE = 1 << 20


def gym_problem(name: str, seed: int) -> Problem:
    """One problem of a generator, determined by the seed."""
    entry = _generator(name)[seed % NUM_AT_ONCE]
    question, answer = str(entry["question"]).strip(), entry["answer"]
    if not isinstance(answer, str) or not answer.strip():
        raise DataError(f"reasoning_gym:{name} gives no answer as text; choose another generator")
    return Problem(f"{name}:{seed}", question, answer.strip())


@lru_cache(maxsize=8)
def _generator(name: str) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise DataError(
            f"'reasoning_gym:{name}' needs reasoning-gym, which cannot be imported ({error}); "
            "pip install 'pettingllms[reasoning]'"
        ) from None
    try:
        return reasoning_gym.create_dataset(name, size=NUM_AT_ONCE, seed=0)
    except ValueError as error:
        raise DataError(f"'reasoning_gym:{name}': {error}") from None
