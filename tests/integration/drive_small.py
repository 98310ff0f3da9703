"""Runs of the small engine, one after another under one Ray; started by test_small_engine.py."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from drive import Quiet, add_prompt, contents, fingerprints

from pettingllms.cluster.start import ray_running
from pettingllms.config import ClusterConfig, RunConfig, load_config
from pettingllms.errors import StaleWeightsError
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop


class Stopping(Quiet):
    """Presses Ctrl-C once a step is done."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_step_end(self, step: int, metrics: Any) -> None:
        super().on_step_end(step, metrics)
        if step == self._after:
            os.kill(os.getpid(), signal.SIGINT)


def taught(config: RunConfig, folder: RunFolder) -> None:
    """Supervised training."""
    from pettingllms.training.sft import _sft, _supervised, items_by_policy, source_episodes

    folder.create(config, supervised=True)
    items = items_by_policy(config, source_episodes(config))
    asyncio.run(_sft(_supervised(config), items, folder, Quiet()))


def trained(config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    """The loop as it is; what policies began with, every policy's hashes after each step, and in
    the end old weights under a new version."""
    history: list[Any] = []
    forged: dict[str, str] = {}
    began_as_taught: dict[str, bool] = {}

    class Watched(loop.Trainer):
        async def start(self) -> None:
            await super().start()
            add_prompt(self._team)
            history.append(await fingerprints(self._team))
            saved = RunFolder(Path(config.train.init_from)).open(print)
            assert saved is not None
            for policy, group in self._team._trained():
                files = await contents((await self._team._learners[group.name].files(policy))[0])
                began = await contents(saved[1][policy])
                same = [began[name] == content for name, content in files.items()]
                began_as_taught[policy] = bool(same) and all(same)

        async def publish(self, step: Any, policies: list[str]) -> None:
            old = {p: self._team._engines[g.name]._published[p] for p, g in self._team._trained()}
            await super().publish(step, policies)
            history.append(await fingerprints(self._team))
            if step.number == config.train.num_steps:
                for policy, published in old.items():
                    forged[policy] = await forge(self._team, policy, published)

    plain, loop.Trainer = loop.Trainer, Watched
    folder.create(config)
    try:
        asyncio.run(loop._train(config, folder, Quiet()))
    finally:
        loop.Trainer = plain
    return {"history": history, "forged": forged, "began_as_taught": began_as_taught}


async def forge(team: Any, policy: str, old: Any) -> str:
    """Hand out old weights under the newest version; what the canary says of it."""
    from pettingllms.cluster.engines import Published

    group, version = team._group(policy), team.versions[policy]
    await team._engines[group.name].publish(policy, Published(old.method, version, old.files))
    try:
        await team._publishers[group.name].check(policy, version, "another mark")
    except StaleWeightsError as error:
        return str(error)
    return ""


def stopped(config: RunConfig, root: Path) -> None:
    """The same run whole, and stopped after its second step and resumed."""
    for name in ("whole", "cut"):
        RunFolder(root / name).create(config)
    asyncio.run(loop._train(config, RunFolder(root / "whole"), Quiet()))
    cut = RunFolder(root / "cut")
    asyncio.run(loop._train(config, cut, Stopping(after=2)))
    found = cut.open(print)
    assert found is not None
    assert found[0].step == 2, "Ctrl-C did not stop it"
    asyncio.run(loop._train(cut.config(), cut, Quiet()))


def at_once(config: RunConfig, folder: RunFolder) -> None:
    """The same run with learners that work at the same time, as they do on GPUs."""

    class AtOnce(loop.Trainer):
        async def start(self) -> None:
            await super().start()
            self._team.concurrent = self._team.critics._concurrent = True

    plain, loop.Trainer = loop.Trainer, AtOnce
    folder.create(config)
    try:
        asyncio.run(loop._train(config, folder, Quiet()))
    finally:
        loop.Trainer = plain


if __name__ == "__main__":
    root = Path(sys.argv[1])
    names = ("train", "ppo", "mappo", "judged")
    configs = {name: load_config(root / f"{name}.toml") for name in names}
    with ray_running(ClusterConfig()):
        taught(configs["train"], RunFolder(root / "sft"))
        start = configs["train"].train.model_copy(update={"init_from": str(root / "sft")})
        begun = configs["train"].model_copy(update={"train": start})
        found = trained(begun, RunFolder(root / "run"))
        (root / "result.json").write_text(json.dumps(found))
        at_once(begun, RunFolder(root / "at_once"))
        for name in ("ppo", "mappo"):
            stopped(configs[name], root / name)
        RunFolder(root / "judged").create(configs["judged"])
        asyncio.run(loop._train(configs["judged"], RunFolder(root / "judged"), Quiet()))
