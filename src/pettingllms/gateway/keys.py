"""Who may call and who may reward: every episode has a token for each, and each of its roles may
have one that calls.

Tokens are random and nothing in them says whose they are, so none leads to another. What is kept is
their digest: looking one up compares no secret sign by sign, and a list of keys in memory, or in a
crash's dump, opens nothing.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal

from pettingllms.gateway.calls import CallError
from pettingllms.gateway.session import Session

PREFIX = "pl-"
MAX_LETTERS = 200
Permission = Literal["call", "reward"]


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens: one episode, or one role of it, to call or to reward."""

    session: Session
    role: str | None = None
    permission: Permission = "call"
    """An agent that holds a key to call must not be able to reward itself, so none does both."""


class Keyring:
    """The tokens of the episodes that are under way."""

    def __init__(self) -> None:
        self._grants: dict[bytes, Grant] = {}
        self._issued: dict[int, list[bytes]] = {}
        """By session."""

    def issue(
        self, session: Session, role: str | None = None, permission: Permission = "call"
    ) -> str:
        """A new token."""
        token = PREFIX + secrets.token_urlsafe(32)
        key = _digest(token)
        self._grants[key] = Grant(session, role, permission)
        self._issued.setdefault(id(session), []).append(key)
        return token

    def revoke(self, session: Session) -> None:
        """Let no token of an episode open anything any more."""
        for key in self._issued.pop(id(session), []):
            del self._grants[key]

    def find(self, tokens: list[str]) -> Grant:
        """The grant of the token that a request carries, however often it does."""
        if not tokens:
            raise CallError(401, "no key came with the request; send the one that you were given")
        wanted = _digest(tokens[0])
        others = [hmac.compare_digest(wanted, _digest(token)) for token in tokens]
        grant = self._grants.get(wanted)
        if grant is None or not all(others):
            raise CallError(401, "this key opens no episode that is under way")
        return grant

    def __len__(self) -> int:
        return len(self._grants)


def tokens_in(headers: list[tuple[bytes, bytes]]) -> list[str]:
    """Every key that a request carries, as OpenAI's clients send it and as Anthropic's do."""
    found: list[str] = []
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"authorization":
            scheme, _, token = text.partition(" ")
            if scheme.lower() != "bearer":
                raise CallError(401, "the authorization is no bearer token")
            found.append(token)
        elif name == b"x-api-key":
            found.append(text)
    if any(not token or len(token) > MAX_LETTERS for token in found):
        raise CallError(401, "this key opens no episode that is under way")
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
