"""Runs on a cluster of three machines (see machines.py); started by test_machines.py.

python drive_machines.py SCENARIO CONFIG FOLDER BINDS
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machines import ADDRESS, Machine, as_init, machines, sh, wait_for

TRAIN_SECONDS = 540.0
DISTURBED_STEPS = 8
LOSS = "4,32 0 0 4294963256,53 1 0 1288490188,6 0 0 2,6 0 0 0"
"""Socket filter: load a random number, and drop the packet (2) if it is below 30%."""
Machines = dict[str, Machine]


def train(there: Machines, config: str, folder: Path, *more: str) -> tuple[Machine, int]:
    """Start a run on the head."""
    head = there["head"]
    command = [sys.executable, "-m", "pettingllms", "train", config, f"cluster.address={ADDRESS}"]
    return head, head.start(*command, *more, "--out", str(folder / "cluster"))


def num_steps(folder: Path) -> int:
    """Steps that the run has done."""
    metrics = folder / "cluster" / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.is_file() else 0


def processes(name: str) -> Iterator[Path]:
    """The processes of an actor class, on all machines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(f"ray::{name}".encode()):
            yield folder


def num_networks(name: str) -> int:
    """The number of machines that processes of an actor class run on."""
    return len({(folder / "ns" / "net").readlink() for folder in processes(name)})


def finished(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A whole run, and where its processes were."""
    head, run = train(there, config, folder)
    seen = {"NodeRank": 0, "TorchEngine": 0}

    def is_over() -> bool:
        seen.update({name: max(most, num_networks(name)) for name, most in seen.items()})
        return head.code(run) is not None

    wait_for(is_over, TRAIN_SECONDS, "the run")
    script = str(Path(__file__).with_name("machine_facts.py"))
    return {
        "code": head.code(run),
        "said": head.said(run),
        "machines": seen,
        "facts": head.run(sys.executable, script)[1],
    }


def refused(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A run that cannot start."""
    head, run = train(there, config, folder)
    code = wait_for(lambda: head.code(run), TRAIN_SECONDS, "the run")
    return {"code": code, "said": head.said(run)}


def disturbed(
    there: Machines,
    config: str,
    folder: Path,
    disturb: Callable[[], None],
    repair: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """A run that suffers something after its second step, and goes on to its end. `repair` is
    called once it has done two more steps."""
    head, run = train(there, config, folder, f"train.num_steps={DISTURBED_STEPS}")
    wait_for(lambda: num_steps(folder) > 1, TRAIN_SECONDS, "two steps")
    start, before = time.monotonic(), num_steps(folder)
    disturb()

    def has_gone_on() -> bool:
        return num_steps(folder) > before + 1 or head.code(run) is not None

    wait_for(has_gone_on, TRAIN_SECONDS, "a step after the fault")
    seconds = time.monotonic() - start
    repair()
    code = wait_for(lambda: head.code(run), TRAIN_SECONDS, "the end")
    return {"code": code, "said": head.said(run), "step": before + 1, "seconds": seconds}


def killed(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A run whose second rank is killed on its machine."""

    def kill() -> None:
        os.kill(int(max(processes("NodeRank"), key=lambda one: int(one.name)).name), 9)

    return disturbed(there, config, folder, kill)


def headless(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A run whose cluster loses its head's network process (GCS)."""
    head, run = train(there, config, folder, "train.num_steps=1000")
    wait_for(lambda: num_steps(folder) > 1, TRAIN_SECONDS, "two steps")
    head.run("pkill", "-9", "-x", "gcs_server")
    code = wait_for(lambda: head.code(run), TRAIN_SECONDS, "the end")
    return {"code": code, "said": head.said(run)}


def partitioned(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A run whose workers lose their network for good."""

    def cut() -> None:
        sh("ip link set v2 down; ip link set v3 down")

    return disturbed(there, config, folder, cut)


def lossy(there: Machines, config: str, folder: Path) -> dict[str, Any]:
    """A run that loses 30% of all packets from its workers for two steps, which take a minute each
    instead of a second."""
    received: list[str] = []

    def lose() -> None:
        for link in ("v2", "v3"):
            sh(f"tc qdisc add dev {link} clsact")
            sh(f"tc filter add dev {link} ingress bpf direct-action bytecode '{LOSS}'")

    def repair() -> None:
        received.extend(re.findall(r"received=(\d+)", there["head"].run(*count_packets(there))[1]))
        for link in ("v2", "v3"):
            sh(f"tc qdisc del dev {link} clsact")

    found = disturbed(there, config, folder, lose, repair)
    return {**found, "received": int(received[0])}


def count_packets(there: Machines) -> list[str]:
    """The command that counts which of a worker's packets reach the head."""
    script = str(Path(__file__).with_name("packets.py"))
    there["worker1"].start(sys.executable, script, "send")
    return [sys.executable, script, "receive"]


def main(scenario: str, config: str, folder: Path, binds: dict[str, dict[str, str]]) -> int:
    try:
        with machines(folder, binds) as there:
            found = globals()[scenario](there, config, folder)
    except TimeoutError as error:
        logs = {log.name: log.read_text(errors="replace")[-3000:] for log in folder.glob("*.log")}
        found = {"code": None, "said": f"{error}\n{json.dumps(logs, indent=1)}"}
    found["said"] = re.sub(r"\x1b\[[0-9;]*m", "", found["said"])
    (folder / "result.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    own = sys.argv[1:]
    as_init(lambda: main(own[0], own[1], Path(own[2]), json.loads(own[3])))
