"""The tasks of gpu_smoke.py, each in a separate process. Never run on a GPU by the authors.

python gpu_smoke_tasks.py TASK FOLDER      # reads config.json there, writes found.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Config = dict[str, Any]


def train(config: Config, out: Path) -> Config:
    """A training run: the metrics of its steps."""
    import pettingllms as pl

    run = pl.train(config, out=out / "run", callbacks=[])
    return {"rows": run.metrics()}


def sft(config: Config, out: Path) -> Config:
    """Supervised training, which needs no engine."""
    import pettingllms as pl

    row = pl.sft(config, out=out / "run", callbacks=[]).metrics()[-1]
    return {"loss": next(value for name, value in row.items() if name.endswith("/loss"))}


def evaluate(config: Config, out: Path) -> Config:
    """Play with engines only."""
    import pettingllms as pl

    return {"num_roles": len(pl.evaluate(config, out=out / "episodes", callbacks=[]).scores)}


def flex(config: Config, _: Path) -> Config:
    """Trees as in a rollout: one prompt with eight replies, in several blocks."""
    import numpy as np
    import torch

    from pettingllms.learners.forest import make_forest
    from pettingllms.learners.tree_attention import make_layout, tree_attention

    device = torch.device(config["device"])
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 99, 300)
    rows = [np.concatenate([prompt, rng.integers(0, 99, 90)]).astype(np.int64) for _ in range(8)]
    forest = make_forest(rows)
    size, end = forest.num_tokens, torch.from_numpy(forest.end_N).to(device)
    torch.manual_seed(0)
    given = [torch.randn(1, 4, size, 32).to(device).requires_grad_() for _ in range(3)]
    layout = make_layout(forest, device)
    ours, _ = tree_attention(None, *given, None, tree=layout)
    at = torch.arange(size, device=device)
    mask = (at[None] <= at[:, None]) & (at[:, None] < end[None])
    dense = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=mask)
    weight = torch.randn_like(ours)
    gradients = [
        torch.autograd.grad((one * weight).sum(), given) for one in (ours, dense.transpose(1, 2))
    ]
    pairs = zip(*gradients, strict=True)
    return {
        "output": float(((ours - dense.transpose(1, 2)).norm() / dense.norm()).detach()),
        "gradient": max(float((a - b).norm() / b.norm()) for a, b in pairs),
    }


def memory(config: Config, _: Path) -> Config:
    """A learner's step of one full pass, in this process."""
    import numpy as np
    import torch

    from pettingllms.cluster.placement import learner_spec
    from pettingllms.config import parse_config
    from pettingllms.learners.batches import Item
    from pettingllms.learners.learner import Learner
    from pettingllms.policies import plan_models
    from pettingllms.preflight.learner_memory import CUDA_CONTEXT
    from pettingllms.preflight.memory import estimate_memory
    from pettingllms.preflight.model_size import read_size

    on_gpu = config["cluster"]["device"] == "gpu"
    device = "cuda" if on_gpu else "cpu"
    made = parse_config(config).for_device(device)
    (group,) = plan_models(made)
    model = Path(group.model)
    sizes = {group.model: read_size(model)}
    estimates = estimate_memory(made, [group], sizes, "gpu" if on_gpu else "cpu")
    planned = next(one.num_bytes for one in estimates if one.name.startswith("learner"))
    learner = Learner(learner_spec(made, group, model, device))
    rng = np.random.default_rng(0)
    items = [
        Item(
            prompt_ids=rng.integers(5, 200, 192).astype(np.int32),
            response_ids=rng.integers(5, 200, 64).astype(np.int32),
            logprobs=np.full(64, -5.0, np.float32),
            advantage=float(at % 2 * 2 - 1),
        )
        for at in range(16)
    ]
    learner.train("p", items, 1)
    if on_gpu:
        return {"planned": planned - CUDA_CONTEXT, "used": torch.cuda.max_memory_allocated()}
    weights = sum(4 * 4 * p.numel() for p in learner._model.parameters())  # noqa: SLF001
    return {"planned": planned, "used": weights}


TASKS = {one.__name__: one for one in (train, sft, evaluate, flex, memory)}

if __name__ == "__main__":
    place = Path(sys.argv[2])
    given = json.loads((place / "config.json").read_text())
    (place / "found.json").write_text(json.dumps(TASKS[sys.argv[1]](given, place)))
