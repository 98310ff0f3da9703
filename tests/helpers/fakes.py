"""The loop and its team as they are, over engines and learners whose weights are one number."""

import asyncio
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, read_content
from pettingllms.rollouts.scripted import ByteRenderer, text_ids
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder
from pettingllms.runtime.busy_clock import BusyClock, Use
from pettingllms.types import Sample, SampleRequest, ScoreRequest

Answer = Callable[[SampleRequest, int, int], str]
"""A request, the number of the sample and the policy's weights in; a reply out."""

NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
"""A file of safetensors without any."""


def legal_cell(request: SampleRequest, number: int, weights: int) -> str:
    """A free cell of a terse tic-tac-toe board, by chance."""
    board = bytes(request.prompt_ids.tolist()).decode().split("\n", 2)[2]
    return random.Random(request.seed + number).choice(re.findall(r"\d", board))


class Ref:
    """A value that is awaited, as in Ray's store."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(0).__await__()
        return self.value


class FakeLearners:
    """Weights rise by one with every batch."""

    def __init__(self, policies: Mapping[str, Any]) -> None:
        self.weights = dict.fromkeys(policies, 0)
        self.kinds = {name: kind_files(policy) for name, policy in policies.items()}
        self.copies: dict[str, Any] = {}
        """Saves that are under way."""
        self.trained: list[tuple[int, str]] = []
        """Step and policy of every update."""
        self.clock = BusyClock()
        self.sampled: dict[int, int] = {}
        """By step, the tokens that the run had sampled before it."""

    def watch(self, config: Any, notify: Any) -> None: ...

    async def start(self, loopback: bool) -> None: ...

    async def stop(self) -> None: ...

    async def files(self, policy: str) -> tuple[Ref, str]:
        content = str(self.weights[policy]).encode()
        files = {"weights": content, **self.kinds[policy]}
        return Ref(files), hashlib.sha256(content).hexdigest()

    async def reach(self, folder: Path) -> list[bool]:
        return [True]

    async def load(self, policy: str, files: Any) -> None:
        self.weights[policy] = int(read_content(files["weights"]))

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        files = await (await self.files(policy))[0]
        self.copies[policy] = folder, files

    async def saved(self, policy: str) -> dict[str, str]:
        """Written only now, so what is written must be what was copied."""
        await asyncio.sleep(0)
        folder, files = self.copies.pop(policy)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    async def call(self, method: str, policy: str = "", *args: Any) -> Any:
        match method:
            case "take_logprobs":
                return self.kept
            case "train":
                items, step, keep, num_tokens, _ = args
                self.sampled[step] = num_tokens
                self.kept = [item.logprobs + np.float32(0.25) for item in items] if keep else None
                self.weights[policy] += 1
                self.trained.append((step, policy))
                tokens = float(sum(item.num_tokens for item in items))
                return {"mismatch": 0.0, "skipped_updates": 0.0, "tokens": tokens, "seconds": 1.0}
            case "logprobs":
                return [logprobs(self.weights[policy], len(i.response_ids)) for i in args[0]]
            case "base_logprobs":
                return [logprobs(0, len(i.response_ids)) for i in policy]
            case "values":
                return [np.full(len(i.response_ids) + 1, 0.5, np.float32) for i in args[0]]
        raise AssertionError(method)


def kind_files(policy: Any) -> dict[str, bytes]:
    """By which a checkpoint tells what kind of weights it holds."""
    if isinstance(policy, FullPolicy):
        return {MODEL_FILE: NO_TENSORS}
    settings = {"r": policy.rank, "lora_alpha": policy.alpha}
    return {ADAPTER_FILE: NO_TENSORS, ADAPTER_CONFIG: json.dumps(settings).encode()}


class SavesFiles:
    """A team, as far as it saves checkpoints: the files of each policy are those of `files_of`."""

    snapshots = SimpleNamespace(sources={})

    def files_of(self, policy: str) -> dict[str, bytes]:
        return {MODEL_FILE: b"w"}

    def learners_of(self, policy: str) -> "SavesFiles":
        return self

    async def reach(self, folder: Path) -> list[bool]:
        return [True]

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        for name, content in self.files_of(policy).items():
            (folder / name).write_bytes(content)

    async def saved(self, policy: str) -> dict[str, str]:
        files = self.files_of(policy)
        return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


class FakeEngines:
    """Answers by a function of the weights that were last published."""

    def __init__(self, policies: list[str], answer: Answer) -> None:
        self.answer = answer
        self.weights = dict.fromkeys(policies, 0)
        self.at = dict.fromkeys(policies, 0)
        self.published: list[str] = []
        self.requests: list[SampleRequest] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def publish(self, policy: str, new: Any) -> None:
        files = new.files if isinstance(new.files, dict) else await new.files
        self.weights[policy] = int(files["weights"])
        self.at[policy] = new.version
        self.published.append(policy)

    async def use(self) -> list[Use]:
        return [Use(0.0, 0.0)]

    async def drop(self, policy: str) -> None:
        del self.weights[policy], self.at[policy]

    async def versions(self) -> list[dict[str, int]]:
        return [dict(self.at)]

    async def score(self, policy: str, given: ScoreRequest) -> list[Any]:
        return [logprobs(self.weights[policy], len(given.response_ids))]

    async def score_together(self, policies: Sequence[str], given: ScoreRequest) -> list[Any]:
        return [{policy: (await self.score(policy, given))[0] for policy in policies}]

    async def score_many(
        self, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[Any]:
        return [logprobs(self.weights[policy], len(one.response_ids)) for one in given]

    async def sample(self, request: SampleRequest) -> list[Sample]:
        self.requests.append(request)
        await asyncio.sleep(0)
        weights, version = self.weights[request.policy], self.at[request.policy]
        texts = [self.answer(request, number, weights) for number in range(request.num_samples)]
        return [
            Sample(text_ids(text), logprobs(weights, len(text_ids(text))), version, "stop")
            for text in texts
        ]


def in_memory(files: Mapping[str, Any]) -> dict[str, bytes]:
    """The contents of files that may be given by path."""
    return {name: read_content(content) for name, content in files.items()}


def logprobs(weights: int, count: int) -> Any:
    return np.full(count, -1.0 - weights, dtype=np.float32)


class Watched(Callback):
    """What the loop said and measured."""

    def __init__(self, dies_after: int = 0) -> None:
        self.said: list[str] = []
        self.metrics: dict[int, Any] = {}
        self._dies_after = dies_after

    def on_step_end(self, step: int, metrics: Any) -> None:
        self.metrics[step] = metrics
        if step == self._dies_after:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None:
        self.said.append(text)


class FakeRun:
    """A run's callback, and the fakes that its team was made of."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.engines: list[FakeEngines] = []
        self.learners: list[FakeLearners] = []

    @property
    def trained(self) -> list[tuple[int, str]]:
        return sorted(update for learners in self.learners for update in learners.trained)

    @property
    def weights(self) -> dict[str, int]:
        return {p: w for learners in self.learners for p, w in learners.weights.items()}


def train_with_fakes(
    config: RunConfig, folder: Path, answer: Answer, dies_after: int = 0
) -> FakeRun:
    """Begin a run in a folder, or resume the one in it; kill it after step `dies_after`."""
    from pettingllms.training import train as loop

    place = RunFolder(folder)
    if not folder.exists():
        place.create(config)
    run = FakeRun(Watched(dies_after))
    with faked(run, answer):
        work = loop._train(place.config(), place, run.watched)
        if dies_after:
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(work)
        else:
            asyncio.run(work)
    return run


@contextmanager
def faked(run: FakeRun, answer: Answer) -> Iterator[None]:
    from pettingllms.cluster import checks as refusals
    from pettingllms.cluster import team, weight_sync

    def start_processes(self: Any, models: Any, learning: bool, sampling: bool) -> None:
        self.config = self.config.for_device("cpu")
        for group in self._groups:
            self._engines[group.name] = FakeEngines(group.policies, answer)
            run.engines.append(self._engines[group.name])
            if learning and group.trained:
                policies = {name: self.config.policies[name] for name in group.trained}
                self._learners[group.name] = FakeLearners(policies)
                run.learners.append(self._learners[group.name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team.Team, "_start_processes", start_processes)
        patch.setattr(weight_sync, "transfer_of", lambda *_: None)  # fakes take only files
        patch.setattr(team, "find_model", Path)
        patch.setattr(refusals, "find_model", Path)
        patch.setattr(team, "renderers_by_policy", lambda _, own: [(ByteRenderer(), list(own))])
        yield
