"""Checks of a valid configuration against this machine, before anything starts.

Nothing here imports an engine or loads weights: sizes are read from file headers, so all checks
take a second or two. Each finding names its key.
"""

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pettingllms.config import RunConfig
from pettingllms.config.engines import resolve_dtype
from pettingllms.config.policies import ApiPolicy, LoraPolicy, target_problem, unknown_targets
from pettingllms.envs import make_env_for
from pettingllms.envs.check_start import check_start
from pettingllms.errors import ClusterError, EnvContractError, ModelError, PettingError
from pettingllms.models.folder import find_model, has_template, missing_in, tensor_shapes
from pettingllms.policies import (
    ModelGroup,
    Node,
    check_lora_dtype,
    check_resources,
    group_resources,
    plan_critics,
    plan_models,
)
from pettingllms.preflight.estimates import pass_tokens
from pettingllms.preflight.machine import Finding, check_sandbox, find_device, find_gpus
from pettingllms.preflight.memory import check_gpu_memory, pass_bytes
from pettingllms.preflight.model_size import read_size
from pettingllms.registry import ENGINES
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import SERVICES
from pettingllms.runtime.resources import GIB, in_gib, memory
from pettingllms.sandbox.detect import find_tier
from pettingllms.vision.families import ADVICE, object_in, supports_images

FLOAT = 4
LEARNING = 4 * FLOAT
"""Bytes per trained parameter: weight, gradient and the two moments of AdamW."""
SAVED = 3 * FLOAT
"""Bytes of a parameter that learns in a checkpoint."""
COPIED = 3 * FLOAT
"""Bytes of such a parameter in the copy that a checkpoint is written from."""
LEARNER = 0.5 * GIB
"""Memory of a learner without its model."""
NOT_ADAPTED = ("embed_tokens", "lm_head")
"""Matrices of common model families that are not linear layers, or the output layer."""
CONNECT_TIMEOUT = 1.0
"""Seconds that a server has to accept a connection."""


def inspect(config: RunConfig, out: Path) -> list[Finding]:
    """All findings about a configuration that was read without errors; `out` is its run folder."""
    groups = plan_models(config)
    models = dict.fromkeys([*(g.model for g in groups), *_critics(config)])
    folders: dict[str, Path] = {}
    found: list[Finding] = []
    for model in models:
        key = _key(config, model)
        try:
            folder = find_model(model)
            found += list(_check_folder(config, key, folder))
            folders[model] = folder
        except ModelError as error:
            what, _, advice = str(error).rpartition("; ")
            found.append(Finding("problem", f"{key}: {what}", advice))
    if groups:
        found += _check_engine(config)
        found += _check_dtypes(config, groups)
    if len(folders) == len(models):
        found += _check_room(config, groups, folders, out)
    return [
        *found,
        *_check_image_support(config, folders),
        *_check_targets(config, folders),
        *_check_tasks(config),
        *_check_start(config),
        *_check_schedule(config),
        *_check_servers(config),
        *_check_trackers(config),
    ]


def _critics(config: RunConfig) -> list[str]:
    return [plan.model for plan in plan_critics(config)]


def _key(config: RunConfig, model: str) -> str:
    """The configuration key that names a model."""
    if config.critic is not None and config.critic.model == model:
        return "critic.model"
    named = (n for n, policy in config.policies.items() if getattr(policy, "model", "") == model)
    return f"policies.{next(named)}.model"


def _check_folder(config: RunConfig, key: str, folder: Path) -> Iterator[Finding]:
    missing = missing_in(folder)
    if missing:
        what = f"{key}: {folder} is not a complete model: {'; '.join(missing)}"
        yield Finding("problem", what, "fetch it again with `pettingllms models get`")
    elif not has_template(folder):
        what = f"{key}: {folder} has no chat template, so it cannot render messages"
        yield Finding("problem", what, "use an instruct model, or add a chat_template.jinja")
    else:
        yield Finding("ok", f"{key}: {folder}, with tokenizer and chat template")
    room = _context(folder)
    if room is not None and config.inference.max_model_len > room:
        what = (
            f"inference.max_model_len: is {config.inference.max_model_len}, and {folder} "
            f"supports {room} tokens"
        )
        yield Finding("problem", what, f"set it to {room} or less")


def _check_image_support(config: RunConfig, folders: Mapping[str, Path]) -> Iterator[Finding]:
    env = make_env_for(config.env)
    image_roles = {model for model, folder in folders.items() if supports_images(folder)}
    for role in env.image_roles:
        model = getattr(config.policies[config.roles[role]], "model", "")
        if model in folders and model not in image_roles:
            what = f"policies.{config.roles[role]}.model: '{env.id}' shows images to '{role}', and"
            yield Finding("problem", f"{what} {folders[model]} is text-only", ADVICE)
    packages = ENGINES.load(config.inference.engine).image_packages
    missing = [name for name in packages if find_spec(name) is None]
    if image_roles and missing:
        what = f"{_key(config, min(image_roles))}: a VLM on vLLM needs {', '.join(missing)}"
        advice = 'pip install torchvision (CPU: scripts/vision_cpu.sh), or inference.engine="torch"'
        yield Finding("problem", what, advice)


def _check_targets(config: RunConfig, folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Layers that adapters would change and the model does not have, by the names in its files."""
    for name, policy in config.policies.items():
        if not isinstance(policy, LoraPolicy) or policy.model not in folders:
            continue
        shapes = tensor_shapes(folders[policy.model])
        layers = [n.removesuffix(".weight") for n, shape in shapes.items() if len(shape) == 2]
        layers = [layer for layer in layers if layer.rpartition(".")[2] not in NOT_ADAPTED]
        if unknown := unknown_targets(policy, layers):
            what, _, advice = target_problem(unknown, layers).partition("; ")
            yield Finding("problem", f"policies.{name}.{what}", advice)


def _context(folder: Path) -> int | None:
    room = object_in(folder / "config.json").get("max_position_embeddings")
    return room if isinstance(room, int) else None


def _check_engine(config: RunConfig) -> Iterator[Finding]:
    engine, device, gpus = config.inference.engine, config.cluster.device, find_gpus()
    can, packages = config.inference.capabilities, ENGINES.load(engine).packages
    needed = [*packages, *(["torch", "peft"] if config.trained_policies() else []), "ray"]
    missing = [name for name in dict.fromkeys(needed) if find_spec(name) is None]
    if missing:
        what = f"inference.engine: '{engine}' and training need {', '.join(missing)}, not installed"
        yield Finding("problem", what, "pip install 'pettingllms[cpu]', or [gpu]")
    if config.cluster.address:
        return
    trains_on = "cpu" if device == "cpu" or not gpus else "cuda"
    if config.trained_policies() and (problem := config.learner.optimizer_problem(trains_on)):
        what, _, advice = problem.partition("; ")
        yield Finding("problem", what, advice)
    if device == "gpu" and not gpus:
        what = 'cluster.device: is "gpu", but no NVIDIA GPU was found'
        yield Finding("problem", what, 'set cluster.device = "cpu", or see `nvidia-smi`')
    if not can.gpu and gpus and device != "cpu":
        what = f'inference.engine: "{engine}" runs only on CPU, and there are GPUs'
        yield Finding("problem", what, 'set cluster.device = "cpu", or leave inference.engine out')
    elif gpus and device != "cpu":
        try:
            check_resources(config, plan_models(config), [Node("this machine", len(gpus))])
        except ClusterError as error:
            what, _, advice = str(error).partition("; ")
            yield Finding("problem", f"cluster: {what}", advice)


def _check_dtypes(config: RunConfig, groups: list[ModelGroup]) -> Iterator[Finding]:
    """The dtypes in use, and adapters that cannot be served in theirs."""
    device = find_device(config.cluster, find_gpus())
    if device == "gpu":
        try:
            check_lora_dtype(config, groups)
        except ClusterError as error:
            what, _, advice = str(error).partition("; ")
            yield Finding("problem", what, advice)
            return
    if device is None:
        yield Finding("ok", f"dtype: bfloat16 if {config.cluster.address} has GPUs, else float32")
        return
    known = config.for_device(device)
    what = f"inference.dtype: {known.inference.dtype}; learner.dtype: {known.learner.dtype}"
    what = f"{what} (on {device.upper()})"
    if config.trained_policies():
        what = f"{what}; the run stops at a mismatch above {known.mismatch_bound():g}"
    yield Finding("ok", what)


def _check_room(
    config: RunConfig, groups: list[ModelGroup], folders: dict[str, Path], out: Path
) -> Iterator[Finding]:
    """Rough memory and disk needs, without activations."""
    if any(map(missing_in, folders.values())):
        return  # reported already, and there is nothing to count
    try:
        dimensions = {model: read_size(folder) for model, folder in folders.items()}
    except ModelError as error:
        yield Finding("problem", f"policies: {error}")
        return
    sizes = {model: size.num_parameters for model, size in dimensions.items()}
    learning = [sizes[g.model] for g in groups if g.full] + [sizes[m] for m in _critics(config)]
    disk = SAVED * sum(learning) * (config.train.num_checkpoints + 1)
    place = next(path for path in [out.absolute(), *out.absolute().parents] if path.exists())
    free = shutil.disk_usage(place).free
    what = f"disk: checkpoints need about {in_gib(disk)}, {in_gib(free)} are free in {place}"
    advice = "free space, write elsewhere with --out, or lower train.keep_checkpoints"
    yield Finding("problem", what, advice) if disk > free else Finding("ok", what)
    if groups and config.cluster.device != "cpu" and config.inference.engine == "vllm":
        yield from check_gpu_memory(config, groups, dimensions, find_gpus())
    if config.cluster.address or (config.cluster.device != "cpu" and find_gpus()):
        return
    needed = memory_needed(config, groups, sizes)
    unused, whole = memory()
    what = f"memory: about {in_gib(needed)} needed, {in_gib(unused)} of {in_gib(whole)} free"
    if added := pass_bytes(config, groups, dimensions, "cpu"):
        what = f"{what}; a learner pass of {pass_tokens(config)} tokens adds {in_gib(added)}"
    advice = 'use a smaller model, adapters (kind = "lora") or a lower inference.cache_gib'
    if needed > whole:
        yield Finding("problem", what, advice)
    elif needed > unused:
        yield Finding("note", what, f"close programs, or {advice}")
    else:
        yield Finding("ok", what)


def memory_needed(config: RunConfig, groups: list[ModelGroup], sizes: dict[str, int]) -> float:
    """Bytes that inference engines and learners need on a CPU, without activations."""
    inference = config.inference
    width = FLOAT if resolve_dtype(inference.dtype, "cpu") == "float32" else FLOAT / 2
    cache = inference.cache_gib if inference.capabilities.kv_cache else 0
    engine = (ENGINES.load(inference.engine).process_gib + cache) * GIB
    learning = LEARNING + COPIED * config.train.background_saves
    total = 0.0
    for group in groups:
        total += group_resources(config, group).num_replicas * (engine + width * sizes[group.model])
        if group.trained:
            total += LEARNER + sizes[group.model] * (learning if group.full else FLOAT)
    return total + sum(LEARNER + learning * sizes[model] for model in _critics(config))


def _check_tasks(config: RunConfig) -> Iterator[Finding]:
    env = make_env_for(config.env)
    try:
        check_start(env, forks=config.rollout.type != "linear")
    except EnvContractError as error:
        yield Finding("problem", f"env.id: {error}", "`pettingllms check-env` reports more")
        return
    yield Finding("ok", f"rollout.on_limit: {env.describe_limit(config.rollout.on_limit)}")
    counts = {split: len(env.tasks(split)) for split in ("train", "test")}
    if counts["train"] < config.rollout.num_tasks:
        what = f"rollout.num_tasks: is {config.rollout.num_tasks}, and '{env.id}' has"
        what = f"{what} {counts['train']} training tasks, so batches are smaller"
        yield Finding("note", what, "lower it, or give the environment more tasks")
    if counts["test"] <= config.eval.first_task:
        what = f"eval.first_task: is {config.eval.first_task}, and '{env.id}' has {counts['test']}"
        yield Finding("problem", f"{what} test tasks", "lower it")
    elif counts["test"] < config.eval.first_task + config.eval.num_tasks:
        left = counts["test"] - config.eval.first_task
        what = f"eval.num_tasks: is {config.eval.num_tasks}, and '{env.id}' has {left} from"
        what = f"{what} eval.first_task on, so fewer are evaluated"
        yield Finding("note", what, "lower it, or give the environment more tasks")
    if env.runs_programs:
        found = check_sandbox()
        level = found.level if find_tier()[0] else "problem"
        yield Finding(level, f"env.id: '{env.id}' runs programs; {found.what}", found.advice)


def _check_start(config: RunConfig) -> Iterator[Finding]:
    if config.train.init_from:
        try:
            RunFolder(Path(config.train.init_from)).weights(sorted(config.trained_policies()))
        except (PettingError, OSError) as error:
            advice = "give the folder of a run with a checkpoint, or leave the key out"
            yield Finding("problem", f"train.init_from: {error}", advice)


def _check_schedule(config: RunConfig) -> Iterator[Finding]:
    if config.train.max_tokens is not None and config.learner.decay_steps:
        what = (
            f"learner.decay_steps: is {config.learner.decay_steps}, but train.max_tokens ends the "
            "run, so runs with equal budgets end at different points of the schedule"
        )
        yield Finding("note", what, f"set learner.decay_tokens = {config.train.max_tokens}")


def _check_servers(config: RunConfig) -> Iterator[Finding]:
    """API keys that must be set, and servers that must accept connections."""
    played = config.played_policies()
    for name, policy in config.policies.items():
        if not isinstance(policy, ApiPolicy) or name not in played:
            continue
        if policy.key and not os.environ.get(policy.key):
            what = f"policies.{name}.key: the environment variable {policy.key} is not set"
            yield Finding("problem", what, f"export {policy.key}=..., or leave the key out")
        yield _reached(f"policies.{name}.url", policy.url)
    judges = config.judge.judges if config.judge else {}
    for name in config.judge.named() if config.judge else ():
        if name in judges and (problem := judges[name].start_problem()):
            what, _, advice = problem.partition("; ")
            yield Finding("problem", f"judge.judges.{name}.{what}", advice)
    if config.cluster.address and config.cluster.address != "auto":
        yield _reached("cluster.address", config.cluster.address)


def _reached(key: str, address: str) -> Finding:
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=CONNECT_TIMEOUT):
            return Finding("ok", f"{key}: {address} accepts connections")
    except (OSError, ValueError) as error:
        what = f"{key}: no server accepts connections at {address} ({error})"
        return Finding("problem", what, "start the server, or correct the address")


def _check_trackers(config: RunConfig) -> Iterator[Finding]:
    for name in SERVICES:
        if getattr(config.log, name) and find_spec(name) is None:
            what = f"log.{name}: is set, but {name} is not installed, so the run would be rejected"
            yield Finding("problem", what, f"pip install 'pettingllms[{name}]'")
