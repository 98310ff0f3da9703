import asyncio
from pathlib import Path

import numpy as np

from pettingllms.inference.recording import FILE, RecordedSampler, Recording, model_hash
from pettingllms.types import Failed, Sample, SampleRequest


class Counting:
    def __init__(self, fails: bool = False) -> None:
        self.calls = 0
        self.fails = fails

    async def sample(self, request: SampleRequest):
        self.calls += 1
        if self.fails:
            return [Failed("no", "sampler")]
        ids = np.array([self.calls, 2], dtype=np.int32)
        return [Sample(ids, np.array([-0.1, -1 / 3], dtype=np.float32), 4, "length")]


def request(seed: int = 1, prompt: tuple[int, ...] = (1, 2)) -> SampleRequest:
    return SampleRequest("p", "r", np.array(prompt, dtype=np.int32), 1, 8, seed, "t")


def ask(folder: Path, sampler: Counting, asked: SampleRequest, mark: str = "x", model: str = "m"):
    recording = Recording(folder)
    try:
        recorded = RecordedSampler(sampler, recording, {"p": mark} if mark else {}, model)
        return asyncio.run(recorded.sample(asked))
    finally:
        recording.close()


def test_the_same_request_gets_the_same_bits_again(tmp_path: Path) -> None:
    sampler = Counting()
    (first,) = ask(tmp_path, sampler, request())
    (again,) = ask(tmp_path, sampler, request())
    assert sampler.calls == 1
    assert again.logprobs.tobytes() == first.logprobs.tobytes()
    assert (again.ids.tolist(), again.policy_version, again.finish) == ([1, 2], 4, "length")


def test_another_request_is_asked(tmp_path: Path) -> None:
    sampler = Counting()
    ask(tmp_path, sampler, request())
    ask(tmp_path, sampler, request(seed=2))
    ask(tmp_path, sampler, request(prompt=(1, 3)))
    ask(tmp_path, sampler, request(), mark="y")
    ask(tmp_path, sampler, request(), model="n")
    assert sampler.calls == 5


def test_a_policy_that_never_changes_is_another_with_another_model(tmp_path: Path) -> None:
    sampler = Counting()
    for model in ("m", "n", "m"):
        ask(tmp_path, sampler, request(), mark="", model=model)
    assert sampler.calls == 2


def test_a_model_is_known_by_its_weights_and_settings(tmp_path: Path) -> None:
    weights, settings = tmp_path / "model.safetensors", tmp_path / "config.json"
    weights.write_bytes(b"1")
    settings.write_text("{}")
    first = model_hash(tmp_path)
    (tmp_path / "README.md").write_text("about it")
    assert model_hash(tmp_path) == first
    weights.write_bytes(b"2")
    second = model_hash(tmp_path)
    settings.write_text('{"rope_theta": 1}')
    assert len({first, second, model_hash(tmp_path)}) == 3


def test_failures_are_not_kept(tmp_path: Path) -> None:
    sampler = Counting(fails=True)
    ask(tmp_path, sampler, request())
    ask(tmp_path, sampler, request())
    assert sampler.calls == 2


def test_a_line_that_was_cut_is_asked_again(tmp_path: Path) -> None:
    sampler = Counting()
    ask(tmp_path, sampler, request(1))
    ask(tmp_path, sampler, request(2))
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-5])
    ask(tmp_path, sampler, request(1))
    ask(tmp_path, sampler, request(2))
    ask(tmp_path, sampler, request(2))
    assert sampler.calls == 3
