"""What a policy would say, read from its log-probs: as Transformers alone computes them."""

import asyncio
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from pettingllms.config import InferenceConfig
from pettingllms.envs import make_env
from pettingllms.exploitability import Tree, nash_conv
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.choice_logprobs import reply_logprobs
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of


def test_a_model_is_read_at_every_information_state_as_it_is(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    env = make_env("kuhn_poker-v1", terse=True)
    tree = Tree(env)
    model = make_tiny(tmp_path / "tiny", texts=texts_of([env], 20), hidden_size=64, vocab_size=320)
    renderer = ChatRenderer(model)
    engine = TorchEngine(EngineSpec(model, InferenceConfig(engine="torch"), ("p",)))

    async def read() -> list[list[float]]:
        await engine.start()
        asked = [(info.messages, info.replies) for info in tree.infos]
        return await reply_logprobs(lambda pairs: engine.score_many("p", pairs), renderer, asked)

    found = asyncio.run(read())
    engine.stop()
    lm = AutoModelForCausalLM.from_pretrained(model)
    for info, some in zip(tree.infos, found, strict=True):
        for reply, logprob in zip(info.replies, some, strict=True):
            prompt, ids = renderer.render(info.messages), renderer.encode(reply)
            whole = torch.tensor(np.concatenate([prompt, ids])).long()
            with torch.no_grad():
                logp = torch.log_softmax(lm(whole[None]).logits[0], -1)
            plain = logp[len(prompt) - 1 : -1].gather(1, whole[len(prompt) :, None]).sum()
            assert logprob == pytest.approx(float(plain), abs=1e-4)
    chances = [[math.exp(one) for one in some] for some in found]
    assert all(0 < sum(some) < 1 for some in chances)
    assert len({tuple(some) for some in chances}) == 12, "every prompt has an answer of its own"
    shares = [[one / sum(some) for one in some] for some in chances]
    assert 0 < nash_conv(env, lambda infos: shares) < 4
