"""API keys: each episode has one key to call and one to reward; its roles may have keys to call.

Tokens are random and independent of each other. The keyring only stores their digests, so that
lookups do not leak a token by timing, and a dump of it contains no valid key. If several gateways
share an address, a token names its gateway by a tag, such as `pl-0-...`. Tags are public: one that
is forged only leads to a gateway that does not know the token.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Literal

from pettingllms.gateway.calls import CallError
from pettingllms.gateway.session import Session

PREFIX = "pl-"
MAX_CHARACTERS = 200
RANDOM_BYTES = 32
TAGGED = re.compile(r"pl-([0-9a-z]{1,16})-[0-9A-Za-z_-]{43}")
"""A token with a tag. Tokens without one are shorter, so they never match."""
INVALID = "invalid API key: it belongs to no open episode"
Permission = Literal["call", "reward"]


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token permits: to call or reward one episode, or one role of it."""

    session: Session
    role: str | None = None
    permission: Permission = "call"
    """Never both: an agent with a key to call must not be able to reward itself."""


class Keyring:
    """The tokens of open episodes."""

    def __init__(self, tag: str = "") -> None:
        self._prefix = f"{PREFIX}{tag}-" if tag else PREFIX
        self._grants: dict[bytes, Grant] = {}
        self._issued: dict[int, list[bytes]] = {}
        """Digests by id of the session."""

    def issue(
        self, session: Session, role: str | None = None, permission: Permission = "call"
    ) -> str:
        """Issue a new token."""
        token = self._prefix + secrets.token_urlsafe(RANDOM_BYTES)
        key = _digest(token)
        self._grants[key] = Grant(session, role, permission)
        self._issued.setdefault(id(session), []).append(key)
        return token

    def revoke(self, session: Session) -> None:
        """Revoke all tokens of an episode."""
        for key in self._issued.pop(id(session), []):
            del self._grants[key]

    def find(self, tokens: list[str]) -> Grant:
        """The grant of the token of a request. A repeated token must be the same each time."""
        if not tokens:
            raise CallError(401, "missing API key; send the key of the episode")
        wanted = _digest(tokens[0])
        matches = [hmac.compare_digest(wanted, _digest(token)) for token in tokens]
        grant = self._grants.get(wanted)
        if grant is None or not all(matches):
            raise CallError(401, INVALID)
        return grant

    def __len__(self) -> int:
        return len(self._grants)


def tokens_in(headers: list[tuple[bytes, bytes]]) -> list[str]:
    """All keys in the headers of a request, in the format of OpenAI or Anthropic."""
    found: list[str] = []
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"authorization":
            scheme, _, token = text.partition(" ")
            if scheme.lower() != "bearer":
                raise CallError(401, "the authorization header is not a bearer token")
            found.append(token)
        elif name == b"x-api-key":
            found.append(text)
    if any(not token or len(token) > MAX_CHARACTERS for token in found):
        raise CallError(401, INVALID)
    return found


def tag_in(token: str) -> str | None:
    """The tag of the gateway that issued a token; None if it has none."""
    found = TAGGED.fullmatch(token)
    return found and found[1]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
