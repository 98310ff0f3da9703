"""With a real tokenizer and model, records equal what the engine saw, including log-probs."""

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
httpx = pytest.importorskip("httpx")

from pettingllms.config import InferenceConfig
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.models import make_tiny
from pettingllms.rollouts.player import Player
from pettingllms.types import Episode, SampleRequest, ScoreRequest, Task

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"You are a role. Count on from {n}: It was said: '{n} {n + 1}'." for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


class Watched(TorchEngine):
    """Keeps its requests and replies."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    async def sample(self, request: SampleRequest) -> Any:
        found = await super().sample(request)
        for sample in found:
            self.seen.append((tuple(request.prompt_ids.tolist()), tuple(sample.ids.tolist())))
        return found


async def ask(http: Any, access: dict[str, str], chat: list[Any], **more: Any) -> Any:
    answer = await http.post(
        f"{access['base_url']}/chat/completions",
        json={"model": "m", "messages": chat, **more},
        headers={"authorization": f"Bearer {access['api_key']}"},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


async def converse(http: Any, access: dict[str, str], number: int) -> None:
    rng = random.Random(number)
    more = {"tools": [TOOL]} if number % 4 == 0 else {}
    chat: list[Any] = [{"role": "user", "content": f"Count on from {number}:"}]
    for _ in range(rng.randrange(1, 4)):
        reply = await ask(http, access, chat, max_tokens=rng.randrange(2, 9), **more)
        if rng.random() < 0.2:
            await asyncio.gather(*(ask(http, access, chat, max_tokens=4, **more) for _ in "ab"))
        if rng.random() < 0.2:
            reply = {"role": "assistant", "content": f"{number} {number + 1}"}
        chat += [reply, {"role": "user", "content": f"It was said: '{rng.randrange(99)}'."}]
    await ask(http, access, chat, max_tokens=4, **more)


@pytest.mark.parametrize("num_chats", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_records_equal_what_the_engine_saw_and_the_model_agrees(
    model: Path, num_chats: int
) -> None:
    async def run() -> Any:
        config = InferenceConfig(engine="torch", max_model_len=1024)
        engine = Watched(EngineSpec(model, config, ("tiny",)))
        await engine.start()
        said: list[str] = []
        gateway = await Gateway.start(said.append, Bounds(calls_per_second=1e6))
        players = {"agent": Player("tiny", engine, ChatRenderer(model))}
        gateway.check(players)
        episode = Episode("t/0", "program-v1", Task("t"), 0)
        session = gateway.open(episode, players, 1, (), Limits(max_calls=10**6))
        access = gateway.agents(session).openai("agent")
        async with httpx.AsyncClient(timeout=600) as http:
            for number in range(num_chats):
                await converse(http, access, number)
        gateway.close(session)
        await gateway.stop()
        pairs = [ScoreRequest(turn.prompt_ids, turn.response_ids) for turn in episode.turns]
        return episode, engine.seen, await engine.score_many("tiny", pairs), said

    episode, seen, logprobs, said = asyncio.run(run())
    recorded = [
        (tuple(turn.prompt_ids.tolist()), tuple(turn.response_ids.tolist()))
        for turn in episode.turns
    ]
    assert said == [], "the template preserves prefixes"
    assert sorted(recorded) == sorted(seen)
    assert episode.failure is None
    extending = [turn for turn in episode.turns if turn.links.extends is not None]
    assert len(extending) > num_chats
    for turn in extending:
        before = episode.turns[turn.links.extends]
        ids = np.concatenate([before.prompt_ids, before.response_ids])
        assert turn.prompt_ids[: len(ids)].tolist() == ids.tolist()
    for turn, score in zip(episode.turns, logprobs, strict=True):
        assert np.abs(turn.logprobs - score).max() < 1e-3
