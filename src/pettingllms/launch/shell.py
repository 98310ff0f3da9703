"""Shell lines that several targets share: start or resume a run, wait for nodes."""

import shlex
from collections.abc import Iterable

from pettingllms.launch.plan import LaunchPlan

RAY_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
"""What every node of a cluster sets before it starts Ray."""

WAIT_FOR_NODES = """\
python - {count} <<'PYTHON'
import sys, time
import ray

wanted, end = int(sys.argv[1]), time.monotonic() + 600
ray.init(address="auto", log_to_driver=False)
while (found := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > end:
        sys.exit(f"only {{found}} of {{wanted}} nodes joined the Ray cluster in 10 minutes")
    time.sleep(2)
PYTHON
"""
OWN_ADDRESS = (
    "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    "s.connect((sys.argv[1], 9)); print(s.getsockname()[0])"
)
"""Python that prints the address from which a node reaches another one."""


def train_lines(
    plan: LaunchPlan, config: str, run: str, *, cluster: bool, replace: bool = True
) -> list[str]:
    """Resume the run if its folder has one, else start it. With `replace`, it takes the place of
    the shell, and so gets its signals."""
    start = ["exec"] if replace else []
    trust = ["--trust-run-code"] if plan.code else []
    resume = shlex.join([*start, "pettingllms", *trust, "resume", run])
    address = ["cluster.address=auto"] if cluster else []
    train = shlex.join([*start, "pettingllms", "train", config, *address, "--out", run])
    return [
        f"if [ -f {shlex.quote(f'{run}/config.toml')} ]; then",
        f"    {resume}",
        "else",
        f"    {train}",
        "fi",
    ]


def exports(settings: dict[str, str]) -> list[str]:
    """Lines that set environment variables."""
    return [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]


def require_variables(names: Iterable[str]) -> list[str]:
    """Lines that end a script if an environment variable is not set."""
    return [f': "${{{name}:?set {name} before you start this run}}"' for name in names]


def wait_for_nodes(count: int) -> str:
    """Wait until so many nodes have joined the cluster of RAY_ADDRESS."""
    return WAIT_FOR_NODES.format(count=count)


def get_models(plan: LaunchPlan) -> list[str]:
    """Lines that fetch models with hub names."""
    return [f"pettingllms models get {shlex.quote(name)}" for name in hub_models(plan)]


def hub_models(plan: LaunchPlan) -> list[str]:
    """Models that a hub has, by their names."""
    return [name for name in plan.models if not name.startswith((".", "/", "~"))]
