"""Where the tokens and texts of stored turns are: in Ray's object store, loaded on first access."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import ObjectLostError

from pettingllms.errors import EpisodesLostError
from pettingllms.rollouts.packed_episodes import token_rows
from pettingllms.types import Episode
from pettingllms.types.stored_turns import StoredTurn, Text, TokenRow


class StoredContent:
    """References to the content of one batch of episodes. The driver owns the objects, so they
    outlive the worker that sampled them, and are freed with the last turn of the batch.

    On the machine that has an object, loading maps shared memory; elsewhere Ray fetches it from
    there, not through the driver.
    """

    def __init__(self, tokens: Any, texts: Any) -> None:
        self._tokens_ref = tokens
        self._texts_ref = texts
        self._tokens: list[TokenRow] | None = None
        self._texts: list[Text] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredContent, (self._tokens_ref, self._texts_ref)

    def tokens(self, row: int) -> TokenRow:
        """The arrays of a turn."""
        if self._tokens is None:
            with own_error():
                self._tokens = token_rows(ray.get(self._tokens_ref))
        return self._tokens[row]

    def text(self, row: int) -> Text:
        """The texts of a turn."""
        if self._texts is None:
            with own_error():
                found: list[Text] = ray.get(self._texts_ref)
            self._texts = found
        return self._texts[row]


@contextmanager
def own_error() -> Iterator[None]:
    """Raise EpisodesLostError if the machine that has an object left the cluster."""
    try:
        yield
    except ObjectLostError as error:
        raise EpisodesLostError(
            "episodes of this step were in the memory of a machine that left the cluster"
        ) from error


def load_turns(episodes: list[Episode]) -> list[Episode]:
    """The same episodes with the content of their turns, for use after Ray has stopped."""
    for episode in episodes:
        episode.turns = [
            turn.loaded() if isinstance(turn, StoredTurn) else turn for turn in episode.turns
        ]
    return episodes
