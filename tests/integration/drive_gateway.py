"""A gateway over a real vLLM engine, in a separate process: what it recorded, as JSON.

drive_gateway.py MODEL RESULT PORT
"""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from pettingllms.config import InferenceConfig
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.rollouts.player import Player
from pettingllms.types import Episode, Task

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"]}
ASKED = [
    {"temperature": 0, "max_tokens": 12},
    {"temperature": 1, "seed": 5, "max_tokens": 12},
    {"temperature": 0.7, "seed": 9, "max_tokens": 20},
    {"temperature": 0, "max_tokens": 1},
]


class Watched:
    """vLLM, and what it was given and gave."""

    def __init__(self, engine: VllmEngine) -> None:
        self.seen: list[tuple[list[int], list[list[int]]]] = []
        self._generate = engine._vllm.generate
        engine._vllm.generate = self.generate  # type: ignore[method-assign]

    async def generate(self, prompt: Any, *args: Any, **more: Any) -> Any:
        last = None
        async for output in self._generate(prompt, *args, **more):
            last = output
            yield output
        assert last is not None
        self.seen.append(
            (list(prompt["prompt_token_ids"]), [list(o.token_ids) for o in last.outputs])
        )


async def ask(http: Any, access: dict[str, str], messages: list[Any], **more: Any) -> Any:
    answer = await http.post(
        f"{access['base_url']}/chat/completions",
        json={"model": "tiny", "messages": messages, **more},
        headers={"authorization": f"Bearer {access['api_key']}"},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def converse(http: Any, access: dict[str, str], number: int) -> None:
    rng = random.Random(number)
    more = {"tools": [TOOL]} if rng.random() < 0.3 else {}
    chat: list[Any] = [{"role": "user", "content": f"Count on from {number}:"}]
    for _ in range(rng.randrange(1, 4)):
        asked = ask(http, access, chat, max_tokens=rng.randrange(2, 9), **more)
        reply = (await asked)["choices"][0]["message"]
        if rng.random() < 0.2:
            await asyncio.gather(*(ask(http, access, chat, max_tokens=4, **more) for _ in "ab"))
        if rng.random() < 0.2:
            reply = {"role": "assistant", "content": f"{number} {number + 1}"}
        chat += [reply, {"role": "user", "content": f"It was said: '{rng.randrange(99)}'."}]
    await ask(http, access, chat, max_tokens=4, **more)


async def run(model: Path, port: int) -> Any:
    config = InferenceConfig(max_model_len=1024, max_num_seqs=64, guided=True)
    engine = VllmEngine(EngineSpec(model, config, ("tiny",)))
    await engine.start()
    watched = Watched(engine)
    renderer = ChatRenderer(model)
    players = {
        "learner": Player("tiny", engine, renderer),
        "agent": Player("tiny", engine, renderer, trained=False),
    }
    said: list[str] = []
    gateway = await Gateway.start(said.append, Bounds(calls_per_second=1e6, max_calls_at_once=999))
    gateway.check(players)
    episode = Episode("t/0", "program-v1", Task("t"), 0)
    session = gateway.open(episode, players, 1, (), Limits(max_calls=10**6))
    agents = gateway.agents(session)
    found: dict[str, Any] = {"said": said}
    async with httpx.AsyncClient(timeout=600) as http:
        for start in range(0, 200, 25):
            talks = (converse(http, agents.openai("learner"), n) for n in range(start, start + 25))
            await asyncio.gather(*talks)
        turns = list(episode.turns)
        found |= compare(turns, watched.seen)
        found["gap"] = await learner_gap(engine, turns)
        own, bare = (
            agents.openai("agent"),
            {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "x"},
        )
        chat = [{"role": "user", "content": "Count on from 7:"}]
        found["pairs"] = [
            [await ask(http, access, chat, **asked) for access in (own, bare)] for asked in ASKED
        ]
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
        guided = [await ask(http, a, chat, response_format=form, max_tokens=60, temperature=0)
                  for a in (own, bare)]  # fmt: skip
        found["guided"] = guided
        # In turns, as what else the machine does changes all the while.
        found["speed"] = {"bare": [], "gateway": []}
        for _ in range(5):
            for name, access in (("bare", bare), ("gateway", own)):
                found["speed"][name].append(await client(access))
    gateway.close(session)
    found["guided_marked"] = sum(turn.guided for turn in episode.turns)
    await gateway.stop()
    engine.stop()
    return found


def compare(turns: list[Any], seen: list[Any]) -> dict[str, Any]:
    """Whether each record is exactly one exchange of the engine, and continues what it says."""
    left = [(tuple(prompt), tuple(out)) for prompt, outs in seen for out in outs]
    recorded = [(tuple(t.prompt_ids.tolist()), tuple(t.response_ids.tolist())) for t in turns]
    broken = 0
    for turn in turns:
        if turn.links.extends is not None:
            before = turns[turn.links.extends]
            ids = np.concatenate([before.prompt_ids, before.response_ids])
            broken += turn.prompt_ids[: len(ids)].tolist() != ids.tolist()
    return {
        "num_turns": len(turns),
        "same": sorted(left) == sorted(recorded),
        "num_extending": sum(turn.links.extends is not None for turn in turns),
        "broken": broken,
        "failed": sum(turn.credit.failure is not None for turn in turns),
    }


async def learner_gap(engine: VllmEngine, turns: list[Any]) -> float:
    """Mean difference between recorded log-probs and those of plain Transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    lm: Any = AutoModelForCausalLM.from_pretrained(engine._spec.model, dtype=torch.float32)
    gaps = []
    for turn in turns[::10]:
        ids = torch.tensor(np.concatenate([turn.prompt_ids, turn.response_ids])).long()
        with torch.no_grad():
            logp = torch.log_softmax(lm(ids[None]).logits[0], -1)
        start = len(turn.prompt_ids)
        theirs = logp[start - 1 : -1].gather(1, ids[start:, None])[:, 0].numpy()
        gaps.append(float(np.abs(theirs - turn.logprobs).mean()))
    return max(gaps)


async def client(access: dict[str, str]) -> Any:
    """Run `speed` in a separate process, as agent programs run."""
    script = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("gateway_client.py"))),
        *(access["base_url"], access["api_key"]),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await script.communicate()
    return json.loads(said)


if __name__ == "__main__":
    model, result, port = sys.argv[1:]
    Path(result).write_text(json.dumps(asyncio.run(run(Path(model), int(port)))))
