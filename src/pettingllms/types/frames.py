"""Frames of a shard: a few hundred episodes as JSON lines and packed arrays.

The lines are those of `records`, in format 3. A message is written where it first occurs, and then
replaced by its number. A new prompt is written as the number of an earlier prompt, how many ids
both share, and how many ids follow. Other arrays are replaced by their lengths.

Token ids are stored as numbers of a vocabulary of the frame, whose most frequent id comes first.
Numbers of four bytes are stored with all their first bytes first. The learner's log-probs are
stored as the bits in which they differ from the sampler's. Nothing is rounded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.errors import RecordError
from pettingllms.types.episodes import Episode
from pettingllms.types.image_files import ImageLoader
from pettingllms.types.messages import Message
from pettingllms.types.packing import message_from_json, message_to_json
from pettingllms.types.records import VALUES, episode_of, episode_to_json
from pettingllms.types.turns import Ids, Values

FORMAT = 3
LINES, TOKENS, VOCABULARY, ENDS = "jsonl", "tokens", "vocabulary", "ends"
NUMBERS = ("logprobs", *VALUES)
PARTS = (LINES, TOKENS, VOCABULARY, ENDS, *NUMBERS)
"""Names of the parts of a frame; empty ones are absent."""
MAX_IDS = 2**28
"""Ids of all prompts of a frame; a frame that claims more is damaged or hostile."""
Words = npt.NDArray[np.uint32]
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class FrameWriter:
    """Collects episodes, and returns the parts of their frame."""

    format = FORMAT

    def __init__(self) -> None:
        self.num_episodes = self.num_bytes = 0
        self._lines: list[str] = []
        self._messages: dict[Message | str, int] = {}
        self._known: tuple[Sequence[Message], list[int]] = ((), [])
        """The messages of the latest turn with their numbers: siblings share them."""
        self._prompts: dict[bytes, int] = {}
        self._latest: dict[str, tuple[int, Ids]] = {}
        """The latest new prompt of each role, with its number."""
        self._tokens: list[Ids] = []
        self._ends: list[Ids] = []
        self._numbers: dict[str, list[Values]] = {name: [] for name in NUMBERS}
        self._predicted: list[Values] = []
        """The sampler's log-probs beside each of the learner's."""
        self._logprobs: Values | None = None

    def add(self, episode: Episode) -> None:
        """Append an episode."""
        try:
            line = _encode(episode_to_json(episode, self))
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"cannot write episode {episode.id}: {error}; the data of its task must be plain "
                "JSON"
            ) from error
        self._lines.append(line)
        self.num_episodes += 1
        self.num_bytes += len(line)

    def messages(self, messages: Sequence[Message]) -> list[Any]:
        """A new message as an object, a known one as its number."""
        if messages is self._known[0]:
            return self._known[1]
        num_known = len(self._messages)
        numbers = [self._number_of(message) for message in messages]
        self._known = messages, numbers
        if len(self._messages) == num_known:
            return numbers
        written: list[Any] = []
        for number, message in zip(numbers, messages, strict=True):
            written.append(number if number < num_known else message_to_json(message))
            num_known = max(num_known, number + 1)
        return written

    def _number_of(self, message: Message) -> int:
        # Tables are equal if one has 1 where the other has 1.0 or True.
        key = _encode(message_to_json(message)) if message.parts else message
        return self._messages.setdefault(key, len(self._messages))

    def prompt(self, role: str, ids: Ids) -> Any:
        """The number of a known prompt, or how a new one extends an earlier one of the role."""
        self._logprobs = None
        key = ids.tobytes()
        if (number := self._prompts.get(key)) is not None:
            return number
        number = self._prompts[key] = len(self._prompts)
        base, earlier = self._latest.get(role, (0, ids[:0]))
        self._latest[role] = number, ids
        shared = _num_shared(earlier, ids)
        self._tokens.append(ids[shared:])
        self.num_bytes += ids.nbytes
        return [base, shared, len(ids) - shared]

    def ids(self, name: str, ids: Ids) -> int:
        """The length."""
        (self._ends if name == ENDS else self._tokens).append(ids)
        self.num_bytes += ids.nbytes
        return len(ids)

    def values(self, name: str, values: Values) -> int:
        """The length."""
        if name == "logprobs":
            self._logprobs = values
        elif name == "learner_logprobs":
            self._predicted.append(_prediction(self._logprobs, len(values)))
        self._numbers[name].append(values)
        self.num_bytes += values.nbytes
        return len(values)

    def parts(self) -> dict[str, bytes]:
        """The parts that are not empty, by name."""
        numbers, vocabulary = _numbered(_joined(self._tokens, np.int32))
        words = {name: _words(values) for name, values in self._numbers.items()}
        if not np.isfinite(words["logprobs"].view(np.float32)).all():
            raise RecordError("cannot write episodes: the sampler reported non-finite log-probs")
        words["learner_logprobs"] ^= _words(self._predicted)
        found = {
            LINES: "".join(line + "\n" for line in self._lines).encode(),
            TOKENS: numbers.tobytes(),
            VOCABULARY: vocabulary.astype("<i4").tobytes(),
            ENDS: _to_planes(np.diff(_joined(self._ends, np.int32), prepend=np.int32(0))),
            **{name: _to_planes(found) for name, found in words.items()},
        }
        return {name: data for name, data in found.items() if data}


class FrameReader:
    """Reads the episodes of a frame, each after those before it."""

    def __init__(self, parts: Mapping[str, bytes], load_image: ImageLoader) -> None:
        self.image = load_image
        self._lines = parts[LINES].splitlines()
        self._arrays = {name: _from_planes(parts.get(name, b"")) for name in NUMBERS}
        self._arrays[ENDS] = np.cumsum(_from_planes(parts.get(ENDS, b"")), dtype=np.uint32)
        vocabulary = np.frombuffer(parts.get(VOCABULARY, b""), "<i4").astype(np.int32)
        numbers = np.frombuffer(parts.get(TOKENS, b""), _number_type(len(vocabulary)))
        self._arrays[TOKENS] = vocabulary[numbers].view(np.uint32)
        self._at = dict.fromkeys(self._arrays, 0)
        self._messages: list[Message] = []
        self._prompts: list[Ids] = []
        self._num_prompt_ids = 0
        self._logprobs: Words | None = None

    def episodes(self) -> Iterator[Episode]:
        """The episodes in order."""
        for line in self._lines:
            data = json.loads(line)
            if data["format"] != FORMAT:
                raise RecordError(f"episode has format {data['format']!r}; expected {FORMAT}")
            yield episode_of(data, self)
        if left := [name for name, array in self._arrays.items() if self._at[name] < len(array)]:
            raise RecordError(f"more {', '.join(left)} than its episodes have")

    def messages(self, data: Sequence[Any]) -> tuple[Message, ...]:
        """The messages of a turn."""
        return tuple(self._message(one) for one in data)

    def _message(self, data: Any) -> Message:
        if isinstance(data, int):
            return self._messages[_size(data)]
        self._messages.append(message_from_json(data, self.image))
        return self._messages[-1]

    def prompt(self, data: Any) -> Ids:
        """The prompt of a turn; turns with equal prompts share the array."""
        self._logprobs = None
        if isinstance(data, int):
            return self._prompts[_size(data)]
        base, shared, num_others = map(_size, data)
        others = self._take(TOKENS, num_others).view(np.int32)
        ids = others
        if shared:
            ids = np.concatenate([self._prompts[base][:shared], others])
        if len(ids) != shared + num_others:
            raise RecordError(f"a prompt shares {shared} ids with one that has fewer")
        self._num_prompt_ids += len(ids)
        if self._num_prompt_ids > MAX_IDS:
            raise RecordError(f"prompts have more than {MAX_IDS:,} ids")
        self._prompts.append(ids)
        return ids

    def ids(self, name: str, data: Any) -> Ids:
        """Other integers of a turn."""
        return self._take(ENDS if name == ENDS else TOKENS, data).view(np.int32)

    def values(self, name: str, data: Any) -> Values:
        """Numbers of a turn."""
        words = self._take(name, data)
        if name == "logprobs":
            self._logprobs = words
        elif name == "learner_logprobs":
            sampled = self._logprobs
            if sampled is not None and len(sampled) == len(words):
                words ^= sampled
        return words.view(np.float32)

    def _take(self, name: str, size: Any) -> Words:
        """The next numbers of an array, as a copy that does not keep the frame in memory."""
        at = self._at[name]
        self._at[name] = end = at + _size(size)
        if end > len(self._arrays[name]):
            raise RecordError(f"fewer {name} than its episodes have")
        return self._arrays[name][at:end].copy()


def _size(data: Any) -> int:
    if type(data) is not int or data < 0:
        raise RecordError(f"expected a count, got {data!r:.40}")
    return data


def _num_shared(one: Ids, two: Ids) -> int:
    """Length of the common prefix."""
    size = min(len(one), len(two))
    differ = (one[:size] != two[:size]).nonzero()[0]
    return int(differ[0]) if len(differ) else size


def _prediction(logprobs: Values | None, size: int) -> Values:
    if logprobs is not None and len(logprobs) == size:
        return logprobs
    return np.zeros(size, np.float32)


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays, dtype=kind) if arrays else np.zeros(0, kind)


def _words(values: Sequence[Values]) -> Words:
    return _joined(values, np.float32).view(np.uint32)


def _number_type(size: int) -> str:
    """The smallest type for the numbers of a vocabulary."""
    return "u1" if size <= 2**8 else "<u2" if size <= 2**16 else "<u4"


def _numbered(ids: Ids) -> tuple[npt.NDArray[Any], Ids]:
    """Ids as numbers of a vocabulary whose most frequent id comes first."""
    found, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    number = np.empty(len(order), _number_type(len(order)))
    number[order] = np.arange(len(order))
    return number[inverse], found[order]


def _to_planes(words: npt.NDArray[Any]) -> bytes:
    return words.astype(words.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, 4).T.tobytes()


def _from_planes(data: bytes) -> Words:
    planes = np.frombuffer(data, np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<u4").reshape(-1).astype(np.uint32)
