"""Scenarios with a whole team of real engines, each run in a separate process by running.py."""

import asyncio
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.algos import make_algorithm_for
from pettingllms.cluster.canary import first_prompt
from pettingllms.cluster.start import ray_running
from pettingllms.config import load_config
from pettingllms.errors import StaleWeightsError
from pettingllms.policies.files import read_content
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop
from pettingllms.types import ScoreRequest


class Quiet(Callback):
    """Watches and prints what is said."""

    def on_phase(self, text: str) -> None:
        print(f"[{time.strftime('%X')}] {text}", flush=True)

    def on_step_end(self, step: int, metrics: Any) -> None:
        print(f"step {step}", flush=True)

    def on_message(self, text: str) -> None:
        print(text, flush=True)


async def fingerprints(team: Any) -> dict[str, dict[str, str]]:
    """For every policy, a hash of the learner's weights and of what the sampler makes of a prompt.

    vLLM packs weights for the processor and keeps no plain copy, so the sampler's hash is that of
    the log-probs, to the last bit, of a fixed reply."""
    found: dict[str, dict[str, str]] = {}
    prompt = team._renderers_prompt()
    for group in team._groups:
        for policy in group.policies:
            given = ScoreRequest(prompt, prompt[:16])
            (logp,) = (await team._engines[group.name].score(policy, given))[:1]
            found[policy] = {"sampler": hashlib.sha256(logp.tobytes()).hexdigest()}
            if policy in group.trained:
                found[policy]["learner"] = (await team._learners[group.name].files(policy))[1]
    return found


def add_prompt(team: Any) -> None:
    renderer = team._samplers.renderers[team._groups[0].policies[0]]
    team._renderers_prompt = lambda: renderer.render(first_prompt(team.env))


def levels(config: Any, result: Path, options: dict[str, Any]) -> Any:
    """The loop as it is; after every step, the fingerprints of every policy."""
    history: list[Any] = []
    extra: dict[str, Any] = {}

    class Watched(loop.Trainer):
        async def start(self) -> None:
            await super().start()
            add_prompt(self._team)
            history.append(await fingerprints(self._team))

        async def publish(self, step: Any, policies: list[str]) -> None:
            await super().publish(step, policies)
            history.append(await fingerprints(self._team))
            if step.number == self._config.train.num_steps and options.get("base"):
                extra["base_gap"] = await base_gap(self._team, options["base"])

    loop.Trainer = Watched
    folder = RunFolder(result.parent / "run")
    folder.create(config)
    loop.train(config, folder, Quiet())
    return {"history": history, **extra}


async def base_gap(team: Any, policy: str) -> float:
    """Mean difference between vLLM and plain Transformers on a frozen policy."""
    import torch
    from transformers import AutoModelForCausalLM

    (group,) = (group for group in team._groups if policy in group.policies)
    prompt = team._renderers_prompt()
    (ours,) = await team._engines[group.name].score(policy, ScoreRequest(prompt, prompt[:16]))
    model = AutoModelForCausalLM.from_pretrained(group.model, dtype=torch.float32)
    ids = torch.tensor(np.concatenate([prompt, prompt[:16]])).long()
    with torch.no_grad():
        logp = torch.log_softmax(model(ids[None]).logits[0], -1)
    start = len(prompt)
    theirs = logp[start - 1 : -1].gather(1, ids[start:, None])[:, 0].numpy()
    return float(np.abs(ours - theirs).mean())


async def started(config: Any) -> Any:
    from pettingllms.cluster.team import Team

    team = await Team.start(config, Quiet().on_message)
    await team.load({}, {})
    add_prompt(team)
    return team


async def batch(team: Any, step: int) -> Any:
    episodes = await team.play(team.env.tasks("train")[:2], step)
    make_algorithm_for(team.config).assign(episodes)
    return episodes


def adapters(config: Any, result: Path, options: dict[str, Any]) -> Any:
    """Train all, then one alone; memory of learner and engine on the way."""

    async def go() -> Any:
        team = await started(config)
        (group,) = team._groups
        memory = await memory_of(team, group.name)
        before = await fingerprints(team)
        await team.publish(list(await team.learn(await batch(team, 1), 1)))
        together = await fingerprints(team)
        episodes = await batch(team, 2)
        only = next(iter(group.trained))
        for episode in episodes:
            for turn in episode.turns:
                if turn.policy != only:
                    turn.credit.advantage = None
        learned = await team.learn(episodes, 2)
        await team.publish(list(learned))
        alone = await fingerprints(team)
        files = await contents((await team._learners[group.name].files(only))[0])
        (result.parent / "adapter.bytes").write_bytes(files["adapter_model.safetensors"])
        del files
        memory_after = await memory_of(team, group.name)
        await team.stop()
        return {
            "before": before, "together": together, "alone": alone, "only": only,
            "memory": memory, "memory_after": memory_after, "trained": list(learned),
        }  # fmt: skip

    with ray_running(config.cluster):
        return asyncio.run(go())


async def memory_of(team: Any, name: str) -> dict[str, int]:
    """Resident bytes of the learner's process and of all of the engine's, and the bytes of the
    tensors that the learner holds: what is resident is also what the allocator keeps for later."""
    from pettingllms.sandbox.process_usage import descendants

    def resident(pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def pid_of(_: Any) -> int:
        return os.getpid()

    def held(_: Any) -> int:
        import gc

        import torch

        tensors = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())

    learner = await team._learners[name].actors[0].__ray_call__.remote(pid_of)
    engine = await team._engines[name].replicas[0].actor.__ray_call__.remote(pid_of)
    both = {"learner": {learner}, "engine": {engine, *descendants(engine)}}
    tensors = await team._learners[name].actors[0].__ray_call__.remote(held)
    return {"tensors": tensors} | {what: sum(map(resident, pids)) for what, pids in both.items()}


def stale(config: Any, result: Path, options: dict[str, Any]) -> Any:
    """Publications that are skipped, or that hand out old weights under a new version."""

    async def refused(work: Any) -> str:
        try:
            await work
        except StaleWeightsError as error:
            return str(error)
        return ""

    async def go() -> Any:
        team = await started(config)
        (policy,) = team.versions
        (group,) = team._groups
        publisher = team._publishers[group.name]
        await team.publish(list(await team.learn(await batch(team, 1), 1)))
        old, _ = await team._learners[group.name].files(policy)

        await team.learn(await batch(team, 2), 2)
        team.versions[policy] += 1  # the loop believes that it has published
        skipped = await refused(team.learn(await batch(team, 3), 3))
        team.versions[policy] -= 1

        _, mark = await team._learners[group.name].files(policy)
        from pettingllms.cluster.engines import Published

        forgery = Published(group.publish_method, 2, old)
        await team._engines[group.name].publish(policy, forgery)
        forged = await refused(publisher.check(policy, 2, mark))
        versionless = await refused(publisher.check(policy, 3, mark))
        team.versions[policy] = 2
        repaired = await publisher.publish(policy, 2)
        await team.stop()
        return {"skipped": skipped, "forged": forged, "behind": versionless, "mended": repaired}

    with ray_running(config.cluster):
        return asyncio.run(go())


def failures(episodes: list) -> list[str]:
    given = [turn.credit for episode in episodes for turn in episode.turns]
    return [str(credit.failure) for credit in given if credit.failure]


def killed(config: Any, result: Path, options: dict[str, Any]) -> Any:
    """Engines killed in the middle of rollouts: the owner, then vLLM's own processes."""

    async def go() -> Any:
        from pettingllms.sandbox.process_usage import descendants

        team = await started(config)
        (group,) = team._groups
        await team.publish(list(await team.learn(await batch(team, 1), 1)))
        said: list[str] = []
        team._engines[group.name]._notify = said.append
        before = await fingerprints(team)
        outcomes = []
        for target in ("owner", "children"):
            actor = team._engines[group.name].replicas[0].actor
            pid = await actor.__ray_call__.remote(lambda _: os.getpid())
            playing = asyncio.ensure_future(batch(team, 2))
            await asyncio.sleep(0.5)
            under_way = not playing.done()
            for victim in {pid} if target == "owner" else descendants(pid):
                os.kill(victim, 9)
            began = time.monotonic()
            episodes = await playing
            outcomes.append({
                "target": target,
                "under_way": under_way,
                "episodes": len(episodes),
                "failed": failures(episodes),
                "versions": sorted({t.policy_version for e in episodes for t in e.turns}),
                "seconds": time.monotonic() - began,
            })  # fmt: skip
            print(outcomes[-1], said, flush=True)
        after = await fingerprints(team)
        gaps = await team.publish(list(await team.learn(await batch(team, 3), 3)))
        await team.stop()
        same = before == after
        return {"outcomes": outcomes, "said": said, "same": same, "gaps": gaps}

    with ray_running(config.cluster):
        return asyncio.run(go())


def ranks(config: Any, result: Path, options: dict[str, Any]) -> Any:
    """One rank and two on the same batches; what two wrote is loaded by one."""

    async def go() -> Any:
        from pettingllms.models import find_model
        from pettingllms.policies import plan_models

        (group,) = plan_models(config)
        model = find_model(group.model)
        rng = np.random.default_rng(3)
        batches = [random_items(rng) for _ in range(3)]
        found: dict[str, Any] = {}
        saved: dict[str, Any] = {}
        for num_ranks in (1, 2):
            learners = await learners_of(config, group, model, num_ranks)
            losses: dict[str, list[Any]] = {policy: [] for policy in group.trained}
            for step, items in enumerate(batches):
                for policy in group.trained:
                    numbers = await learners.call("train", policy, items, step)
                    losses[policy].append([numbers["loss"], numbers["grad_norm"], numbers["kl"]])
            saved[str(num_ranks)] = await files_of(learners, group)
            logps = await logps_of(learners, group, batches[0])
            found[str(num_ranks)] = {"losses": losses, "logps": logps}
            await learners.stop()
        learners = await learners_of(config, group, model, 1)
        for policy in group.trained:
            await learners.call("load", policy, saved["2"][policy])
        found["loaded"] = await logps_of(learners, group, batches[0])
        found["same_files"] = await files_of(learners, group) == saved["2"]
        found["weights_differ"] = largest_difference(saved["1"], saved["2"])
        found["moved"] = largest_move(model, saved["1"])
        await learners.stop()
        return found

    with ray_running(config.cluster):
        return asyncio.run(go())


def random_items(rng: np.random.Generator) -> list[Any]:
    from pettingllms.learners.batches import Item

    made = []
    for _ in range(7):
        prompt, reply = (rng.integers(10, 100, n).astype(np.int32) for n in rng.integers(4, 24, 2))
        logp = rng.normal(-3, 1, len(reply)).astype(np.float32)
        made.append(Item(prompt, reply, logp, float(rng.normal())))
    return made


async def learners_of(config: Any, group: Any, model: Path, num_ranks: int) -> Any:
    from pettingllms.cluster.learners import Learners
    from pettingllms.cluster.placement import learner_spec
    from pettingllms.cluster.reservation import Place
    from pettingllms.runtime.resources import CoreShare

    learner = config.learner.model_copy(update={"num_ranks": num_ranks})
    changed = config.model_copy(update={"learner": learner})
    place = Place({"num_cpus": 0, "num_gpus": 0}, CoreShare(num_threads=1))
    learners = Learners(learner_spec(changed, group, model, "cpu"), [place] * num_ranks)
    await learners.start(loopback=True)
    return learners


async def contents(files: Any) -> dict[str, bytes]:
    """Files that are in Ray's store, or on this machine's disk."""
    found = files if isinstance(files, dict) else await files
    return {name: read_content(content) for name, content in found.items()}


async def files_of(learners: Any, group: Any) -> dict[str, dict[str, bytes]]:
    found = {}
    for policy in group.trained:
        weights, _ = await learners.files(policy)
        found[policy] = {**await contents(weights), **await learners.call("state", policy)}
    return found


async def logps_of(learners: Any, group: Any, items: list[Any]) -> dict[str, list[Any]]:
    return {
        policy: [logp.tolist() for logp in await learners.call("logprobs", policy, items)]
        for policy in group.trained
    }


def largest_difference(one: Any, two: Any) -> float:
    from safetensors.numpy import load

    largest = 0.0
    for policy, files in one.items():
        for name, content in files.items():
            if name in ("model.safetensors", "adapter_model.safetensors"):
                mine, other = load(content), load(two[policy][name])
                assert mine.keys() == other.keys()
                largest = max(largest, *(float(np.abs(mine[k] - other[k]).max()) for k in mine))
    return largest


def largest_move(model: Path, saved: Any) -> float:
    """How far training moved the weights: what a difference between ranks is to be held against."""
    from safetensors.numpy import load, load_file

    largest = 0.0
    for files in saved.values():
        if "model.safetensors" in files:
            new, old = load(files["model.safetensors"]), load_file(model / "model.safetensors")
            largest = max(largest, *(float(np.abs(new[k] - old[k]).max()) for k in new))
        else:
            new = load(files["adapter_model.safetensors"])
            largest = max(
                largest, *(float(np.abs(v).max()) for k, v in new.items() if "lora_B" in k)
            )
    return largest


SCENARIOS = {f.__name__: f for f in (levels, adapters, stale, killed, ranks)}

if __name__ == "__main__":
    scenario, config_path, result_path, given = sys.argv[1:]
    answer = SCENARIOS[scenario](
        load_config(Path(config_path)), Path(result_path), json.loads(given)
    )
    Path(result_path).write_text(json.dumps(answer))
