"""Keeps text from becoming control tokens.

A tokenizer finds its special tokens by their spelling, anywhere in a text. So a text that spells
`<|im_end|>` would end its own message. Before a template is applied, a mark splits each spelling in
the messages after the first character. The prompt is then split at the marks, and every piece is
tokenized separately: the spelling stays readable as text, and only the template writes control
tokens. A prompt without such a spelling has no mark and is tokenized as a whole, as in training.

Control tokens are those that the tokenizer declares special. Some tokenizers do not declare the
tokens special that begin a user's message, so tokens that the template writes into an ordinary chat
count too. Paired tags such as `<think>` do not, unless they are special: models write them in
replies.
"""

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

PRIVATE_USE = range(0xE000, 0xF900)
MARK_LENGTH = 8


class ControlTokens:
    """The special tokens of one tokenizer, as their spellings in text."""

    def __init__(self, tokenizer: Any, also: Iterable[str] = ()) -> None:
        """`also`: further tokens to treat as control tokens."""
        added = tokenizer.added_tokens_decoder.values()
        found = {token.content for token in added if token.special}
        found |= {str(token) for token in tokenizer.all_special_tokens} | set(also)
        found |= _written_by_template(tokenizer)
        # White space and single characters have no other spelling: they stay text.
        self.spellings = tuple(sorted(word for word in found if len(word.strip()) > 1))
        """Spellings that are split in texts."""
        self._starts = re.compile(_starts(self.spellings) or "(?!)")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._normalizer = getattr(backend, "normalizer", None)
        # The mark is random, so that no text can contain it.
        private = [chr(secrets.choice(PRIVATE_USE)) for _ in range(MARK_LENGTH)]
        self._mark = "".join(private)

    def cut(self, value: Any) -> Any:
        """The same text, list or table, with a mark in every spelling of a control token."""
        if isinstance(value, str):
            return self._cut_text(value)
        if isinstance(value, dict):
            return {self.cut(key): self.cut(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.cut(one) for one in value]
        return value

    def pieces(self, text: str) -> list[str]:
        """The parts of a marked text, which are tokenized separately."""
        return text.split(self._mark)

    def _cut_text(self, text: str) -> str:
        if self._normalizer is not None:  # it may map other characters to a spelling
            normal = self._normalizer.normalize_str(text)
            if len(self._starts.findall(normal)) > len(self._starts.findall(text)):
                text = normal
        return self._starts.sub(rf"\g<0>{self._mark}", text)


def _written_by_template(tokenizer: Any) -> set[str]:
    """Added tokens between the messages of an ordinary chat, without tags that come in pairs."""
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        return set()
    roles = ("user", "assistant", "user")
    chat = [{"role": role, "content": "x"} for role in roles]
    try:
        ids = tokenizer.apply_chat_template(chat, return_dict=False)
    except (TemplateError, TypeError):
        return set()  # the template does not accept an ordinary chat
    added = {at: token.content for at, token in tokenizer.added_tokens_decoder.items()}
    closing = {word for word in added.values() if word.startswith("</") and word.endswith(">")}
    tags = closing | {word.replace("</", "<", 1) for word in closing}
    return {added[one] for one in ids if one in added} - tags


def _starts(words: Iterable[str]) -> str:
    """A pattern for the first character of every word, overlapping ones too."""
    return "|".join(
        f"{re.escape(first)}(?={_pattern(rests)})" for first, rests in _by_first(words).items()
    )


def _pattern(words: list[str]) -> str:
    """A trie as a regular expression: it matches shared prefixes once, so that hundreds of words
    cost no more than one."""
    if "" in words:
        return ""
    if len(words) == 1:
        return re.escape(words[0])
    branches = [re.escape(first) + _pattern(rests) for first, rests in _by_first(words).items()]
    return f"(?:{'|'.join(branches)})"


def _by_first(words: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for word in words:
        found[word[0]].append(word[1:])
    return found
