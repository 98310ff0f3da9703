"""Search backends: an index of the world's articles, or a user-defined service.

The index is BM25 by `bm25s`, in memory. The service is off unless configured: one HTTP address that
takes `{"query": ..., "top_k": ...}` and returns `{"results": [{"title": ..., "text": ...}]}`.
"""

import json
import re
import urllib.request
from functools import lru_cache
from http.client import HTTPException
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pettingllms.envs.tasks.search.world import Article, make_world
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.errors import ConfigError, DataError
from pettingllms.runtime.call_clock import pause_call_clock

SECONDS = 8.0
NUM_TRIES = 2
KNOWN_QUERY = "river"
"""A query that every service can answer, possibly with no results."""
MAX_BYTES = 1_000_000
WORD = re.compile(r"\w+")
COMMON = frozenset(
    ["a", "an", "and", "by", "for", "has", "in", "is", "it", "of", "on", "that", "the", "to", "was"]
)


def require_bm25s() -> None:
    """Raise ConfigError with the install command unless bm25s is installed."""
    if find_spec("bm25s") is None:
        raise ConfigError("search-v1", ["needs bm25s; run `pip install 'pettingllms[search]'`"])


def search_world(world_seed: int, query: str, top_k: int) -> tuple[Article, ...]:
    """The best articles of a world, excluding those that share no word with the query."""
    index, vocabulary = _index(world_seed)
    words = [word for word in _words(query) if word in vocabulary]
    if not words:
        return ()
    found, scores = index.retrieve([words], k=top_k, show_progress=False)
    articles = make_world(world_seed).articles
    pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
    return tuple(articles[at] for at, score in pairs if score > 0)


@pause_call_clock()
def search_service(address: str, query: str, top_k: int) -> tuple[Article, ...]:
    """The results of the user's service; DataError if its response is malformed.

    BadReply if it fails twice on this query but answers another one: then the query is at fault.
    """
    for _ in range(NUM_TRIES):
        try:
            return _ask_service(address, query, top_k)
        except (DataError, OSError, HTTPException) as error:
            failure = error
    try:
        _ask_service(address, KNOWN_QUERY, top_k)
    except (DataError, OSError, HTTPException):
        raise failure from None
    raise BadReply("the search failed on this query; give another one")


def _ask_service(address: str, query: str, top_k: int) -> tuple[Article, ...]:
    if not address.startswith(("http://", "https://")):
        raise ConfigError("search-v1", [f"env.service is '{address}'; give an http address"])
    body = json.dumps({"query": query, "top_k": top_k}).encode()
    request = urllib.request.Request(  # noqa: S310 - only http, checked above
        address, data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as reply:  # noqa: S310
        raw = reply.read(MAX_BYTES)
    try:
        results = json.loads(raw)["results"]
        return tuple(_article(result) for result in results[:top_k])
    except (ValueError, KeyError, TypeError) as error:
        form = '{"results": [{"title": ..., "text": ...}]}'
        raise DataError(f"{address} gave {raw[:80]!r}; expected {form}") from error


def _article(result: Any) -> Article:
    title, text = result["title"], result["text"]
    if not isinstance(title, str) or not isinstance(text, str):
        raise TypeError("title and text are texts")
    return Article(title, text)


@lru_cache(maxsize=8)
def _index(world_seed: int) -> tuple[Any, frozenset[str]]:
    tokens = [_words(f"{one.title} {one.text}") for one in make_world(world_seed).articles]
    index = import_module("bm25s").BM25()
    index.index(tokens, show_progress=False)
    return index, frozenset(word for article in tokens for word in article)


def _words(text: str) -> list[str]:
    return [word for word in WORD.findall(text.lower()) if word not in COMMON]
