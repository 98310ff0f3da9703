"""Golden runs: short trainings of a tiny model, with every result stored in golden.json.

Changes that must not alter behavior, such as renames, must reproduce the stored results exactly.
`golden.py --check` compares and prints differences; `golden.py --write` stores new results after an
intended change of behavior.

Only this file and scenarios.py use names of the package. The tables map the stable keys of
golden.json to current names, so a rename edits the tables and the configs and never golden.json.
"""

import argparse
import hashlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scenarios import SCENARIOS, WARM_STARTS

GOLDEN = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-3
"""Relative tolerance of floats on a machine other than the one that wrote golden.json."""
MAX_LINES = 20
"""Differences that are printed per scenario."""
HASHES = "sha256"
"""Key of the results that only the same CPU kind and torch build reproduce."""

# Stable key: current metric in metrics.jsonl. A star matches one name, kept in the stable key.
METRICS = {
    "policy/*/loss": "policies/*/loss",
    "policy/*/grad_norm": "policies/*/grad_norm",
    "policy/*/kl": "policies/*/kl",
    "policy/*/sampler_entropy": "policies/*/sampler_entropy",
    "policy/*/clip_share": "policies/*/clip_share",
    "policy/*/sampler_gap": "policies/*/mismatch",
    "policy/*/version": "policies/*/version",
    "policy/*/trained_turns": "policies/*/trained_turns",
    "policy/*/trained_tokens": "policies/*/trained_tokens",
    "policy/*/abs_advantage": "policies/*/mean_abs_advantage",
    "policy/*/zero_share": "policies/*/zero_share",
    "policy/*/updates": "policies/*/updates",
    "policy/*/skipped_updates": "policies/*/skipped_updates",
    "policy/*/weight": "policies/*/weight",
    "policy/*/value_loss": "policies/*/value_loss",
    "policy/*/explained_variance": "policies/*/explained_variance",
    "critic/*/loss": "critics/*/value_loss",
    "critic/*/grad_norm": "critics/*/grad_norm",
    "critic/*/explained_variance": "critics/*/explained_variance",
    "role/*/reward": "roles/*/reward",
    "role/*/success": "roles/*/success",
    "role/*/best_of_k_success": "roles/*/best_of_k_success",
    "role/*/num_turns": "roles/*/num_turns",
    "role/*/reply_tokens": "roles/*/reply_tokens",
    "rollout/episodes": "rollout/num_episodes",
    "rollout/failed": "rollout/failed_episodes",
    "rollout/groups": "rollout/num_groups",
    "rollout/tokens": "rollout/tokens",
    "rollout/extra_tokens": "rollout/extra_tokens",
    "rollout/total_tokens": "rollout/total_tokens",
    "league/size": "league/size",
    "league/rating": "league/rating",
    "league/rating_sigma": "league/rating_sigma",
    "league/score_of_snapshots": "league/score_snapshots",
    "league/score_of_minimax": "league/score_minimax",
    "coplayers/phase": "co_players/phase",
    "coplayers/reward": "co_players/reward",
    "coplayers/switched": "co_players/switched",
    "coplayers/before": "co_players/before",
    "coplayers/after": "co_players/after",
}
# Stable name: current name, for what a star matches and for policies in checkpoints.
NAMES = {"team critic": "critic:team"}
# Stable key: current attribute of a turn of an episode.
TURN = {
    "prompts": "prompt_ids",
    "responses": "response_ids",
    "sampler_logprobs": "logprobs",
    "advantages": "credit.advantages",
    "advantage": "credit.advantage",
    "values": "credit.values",
    "returns": "credit.returns",
    "critic_prompts": "centralized_ids",
}
# Stable key: current attribute of the rewards of a step.
REWARDS = {"turn": "process", "role": "agent", "team": "team"}
OPTIMIZER_FILE = "optimizer.safetensors"
RAY_USERS = ("pettingllms.training.train.ray_running", "pettingllms.training.sft.ray_running")
"""Where training starts Ray, which these runs share."""


def run_all(folder: Path) -> dict[str, Any]:
    """Run every scenario in a folder, all under one Ray; the results by scenario."""
    from pettingllms.cluster.start import ray_running
    from pettingllms.config import ClusterConfig

    os.environ["OMP_NUM_THREADS"] = "1"  # read by torch, here and in the processes of Ray
    found = {}
    with ray_running(ClusterConfig()), ExitStack() as patches:
        for user in RAY_USERS:
            patches.enter_context(mock.patch(user, return_value=nullcontext()))
        for name, (texts, toml) in WARM_STARTS.items():
            found[name] = _warm_start(folder / name, texts, toml)
        for name, (start, toml) in SCENARIOS.items():
            found[name] = _train(folder / name, toml, folder / start / "exported")
    return {"machine": machine(), "metric_names": emitted(folder), "scenarios": found}


def emitted(folder: Path) -> list[str]:
    """The names of all metrics that the runs of a folder wrote."""
    files = folder.rglob("metrics.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted({name for row in rows for name in row} - {"step"})


def _warm_start(path: Path, texts: Sequence[str], toml: str) -> dict[str, Any]:
    from pettingllms.config import load_config
    from pettingllms.models import make_tiny
    from pettingllms.runs.callbacks import Callback
    from pettingllms.runs.folder import RunFolder
    from pettingllms.training.export import export
    from pettingllms.training.sft import sft

    tiny = make_tiny(path / "tiny", texts=texts, hidden_size=64, vocab_size=300)
    (path / "config.toml").write_text(toml.replace("MODEL", str(tiny)), encoding="utf-8")
    config, run = load_config(path / "config.toml"), RunFolder(path / "run")
    run.create(config, supervised=True)
    sft(config, run, Callback())
    export(config, run.newest(print)[1], None, path / "exported")
    return summarize(run.path)


def _train(path: Path, toml: str, model: Path) -> dict[str, Any]:
    from pettingllms.config import load_config
    from pettingllms.runs.folder import RunFolder
    from pettingllms.training.train import train

    start = time.monotonic()
    path.mkdir()
    (path / "config.toml").write_text(toml.replace("MODEL", str(model)), encoding="utf-8")
    config, run = load_config(path / "config.toml"), RunFolder(path / "run")
    run.create(config)
    train(config, run)
    print(f"{path.name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return summarize(run.path)


def machine() -> dict[str, str]:
    """What hashes depend on besides our code: torch, the CPU, and the rounding of a forward pass.

    The model of that pass uses nothing of the package, so no change of ours alters its hash."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    sizes: Any = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 512, "head_dim": 32}
    heads: Any = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).eval()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            weight.copy_(torch.from_numpy(rng.normal(0, 0.1, tuple(weight.shape)).astype("f4")))
        logits = model(torch.arange(3, 40)[None]).logits
    return {
        "torch": str(torch.__version__),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "forward": _sha(logits.numpy()),
    }


def summarize(run: Path) -> dict[str, Any]:
    """Everything that a run left behind, under stable keys."""
    from pettingllms.runs.folder import RunFolder

    _, saved = RunFolder(run).newest(print)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return {
        "metrics": [_metrics(json.loads(line)) for line in lines],
        "weights": {HASHES: {_stable(name): _weights(saved[name]) for name in saved}},
        "episodes": [
            [_episode(episode) for episode in _episodes(file)]
            for file in sorted((run / "episodes").glob("step-*"))
        ],
    }


def _metrics(line: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for stable, current in METRICS.items():
        pattern = re.compile(re.escape(current).replace(r"\*", "([^/]+)"))
        for key, value in line.items():
            if match := pattern.fullmatch(key):
                name = _stable(match[1]) if match.groups() else ""
                found[stable.replace("*", name)] = value
    return dict(sorted(found.items()))


def _stable(name: str) -> str:
    return {current: stable for stable, current in NAMES.items()}.get(name, name)


def _weights(files: Mapping[str, Any]) -> list[str]:
    """A hash of the weights in all files, and one of the optimizer's state."""
    from safetensors.numpy import load

    weights: dict[str, Any] = {}
    moments: dict[str, Any] = {}
    for name, content in files.items():
        if name.endswith(".safetensors"):
            whole = content if isinstance(content, bytes) else content.read_bytes()
            (moments if name == OPTIMIZER_FILE else weights).update(load(whole))
    return [_sha(*(part[key] for key in sorted(part))) for part in (weights, moments)]


def _episodes(file: Path) -> Iterator[Any]:
    from pettingllms.types import read_episodes

    return read_episodes(file)


def _episode(episode: Any) -> dict[str, Any]:
    turns = episode.turns
    return {
        "task": episode.task.id,
        "num_turns": len(turns),
        "num_response_tokens": sum(len(_of(turn, "responses")) for turn in turns),
        "advantage": [_of(turn, "advantage") for turn in turns],
        "rewards": [_rewards(step.rewards) for step in episode.steps],
        "success": dict(episode.success),
        HASHES: {stable: _sha(*(_of(turn, stable) for turn in turns))[:16] for stable in TURN},
    }


def _of(turn: Any, stable: str) -> Any:
    return attrgetter(TURN[stable])(turn)


def _rewards(rewards: Any) -> dict[str, Any]:
    found = {stable: getattr(rewards, current) for stable, current in REWARDS.items()}
    return {
        level: {role: _reward(one) for role, one in some.items()}
        if isinstance(some, Mapping)
        else _reward(some)
        for level, some in found.items()
        if some
    }


def _reward(reward: Any) -> float | str:
    return getattr(reward, "value", "failed")


def _sha(*arrays: Any) -> str:
    """A hash of the types, shapes and bytes of arrays, floats or Nones, in their order."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        values = np.ascontiguousarray(array)
        digest.update(f"{values.dtype.str}{np.shape(array)}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def differences(stored: Any, found: Any, exact: bool, where: str = "") -> Iterator[str]:
    """Where results differ: in anything, or on another machine in more than rounding."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in sorted(stored.keys() | found.keys()):
            place = f"{where}/{key}"
            if key not in found or key not in stored:
                yield f"{place}: only in the {'stored' if key in stored else 'new'} results"
            elif exact or key != HASHES:
                yield from differences(stored[key], found[key], exact, place)
    elif isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        for at, (one, other) in enumerate(zip(stored, found, strict=True)):
            yield from differences(one, other, exact, f"{where}[{at}]")
    elif not _same(stored, found, exact):
        yield f"{where}: stored {stored!r}, found {found!r}"


def _same(stored: Any, found: Any, exact: bool) -> bool:
    if not exact and isinstance(stored, float) and isinstance(found, float):
        return math.isclose(stored, found, rel_tol=TOLERANCE, abs_tol=1e-5)
    return bool(stored == found) and type(stored) is type(found)


def other_machine(stored: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How the machine differs from the one that wrote golden.json; empty if it does not."""
    return "; ".join(differences(stored["machine"], found["machine"], exact=True, where="machine"))


def _compare(stored: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Print the differences per scenario; the number of scenarios that differ."""
    other, num_red = other_machine(stored, found), 0
    if other:
        print(f"Comparing floats with tolerance {TOLERANCE:g} and no hashes: {other}")
    for name in stored["scenarios"] | found["scenarios"]:
        one, two = (results["scenarios"].get(name) for results in (stored, found))
        lines = list(differences(one, two, exact=not other))
        print(f"{name}: {f'{len(lines)} differences' if lines else 'same'}")
        print("".join(f"  {line:.200}\n" for line in lines[:MAX_LINES]), end="")
        num_red += bool(lines)
    return num_red


def _to_json(results: Mapping[str, Any]) -> str:
    """JSON with one line per step or episode, so that diffs of the file can be read."""
    text = json.dumps(results, indent=1, sort_keys=True)
    return re.sub(r"\n {6,}[ ]*|\n {5}(?=[\]}])", " ", text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run all scenarios of the golden runs.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="store the results in golden.json")
    what.add_argument("--check", action="store_true", help="print differences per scenario")
    what.add_argument("--out", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        found = run_all(Path(folder))
    if arguments.check:
        sys.exit(_compare(json.loads(GOLDEN.read_text(encoding="utf-8")), found) > 0)
    out = GOLDEN if arguments.write else arguments.out
    if arguments.write:
        del found["metric_names"]  # the docs have them
    out.write_text(_to_json(found), encoding="utf-8")


if __name__ == "__main__":
    main()
