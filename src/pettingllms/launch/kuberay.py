"""KubeRay: a RayJob with its cluster, and a ConfigMap with the configuration.

The operator creates the cluster's token as a secret (`authOptions`, KubeRay 1.5.1 or later). Keys
of servers and trackers come from a secret that the user creates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pettingllms.launch.plan import LaunchPlan
from pettingllms.launch.shell import train_lines
from pettingllms.runtime.yaml_text import to_yaml

FILE = "rayjob.yaml"
SCRIPT = "start.sh"
RAY_VERSION = "2.60.0"
DATA = "/data"
"""Where the volume with models and runs is mounted."""
CONFIG_FOLDER = "/etc/pettingllms"
SHARED_MEMORY_GIB = 16
"""Size of /dev/shm, for Ray's object store and NCCL."""


@dataclass(frozen=True, slots=True)
class KubeRayOptions:
    """What a cluster decides."""

    image: str
    claim: str = "pettingllms-data"
    """PersistentVolumeClaim with models and runs, which all nodes can mount."""
    secret: str = "pettingllms-keys"  # noqa: S105 - the name of a secret
    namespace: str = ""


def kuberay_files(plan: LaunchPlan, options: KubeRayOptions) -> dict[str, str]:
    """The files of a launch by name."""
    plan.require_shipped_code("kuberay")
    return {FILE: f"{to_yaml(_config_map(plan, options))}---\n{to_yaml(_job(plan, options))}"}


def _config_map(plan: LaunchPlan, options: KubeRayOptions) -> dict[str, Any]:
    run = f"{DATA}/runs/{plan.name}"
    train = train_lines(plan, f"{CONFIG_FOLDER}/run.toml", run, cluster=True)
    lines = ["set -eu", *plan.setup, *train]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(plan, options),
        "data": {SCRIPT: "\n".join(lines) + "\n", "run.toml": plan.toml},
    }


def _job(plan: LaunchPlan, options: KubeRayOptions) -> dict[str, Any]:
    workers = {
        "groupName": "workers",
        "replicas": plan.num_nodes - 1,
        "minReplicas": plan.num_nodes - 1,
        "maxReplicas": plan.num_nodes - 1,
        "rayStartParams": {},
        "template": _pod(plan, options, "ray-worker", {}),
    }
    head = {
        "rayStartParams": {"dashboard-host": "0.0.0.0"},  # noqa: S104 - KubeRay submits the job there
        "template": _pod(
            plan,
            options,
            "ray-head",
            {
                "ports": [
                    {"containerPort": 6379, "name": "gcs-server"},
                    {"containerPort": 8265, "name": "dashboard"},
                    {"containerPort": 10001, "name": "client"},
                ]
            },
        ),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(plan, options),
        "spec": {
            "entrypoint": f"bash {CONFIG_FOLDER}/{SCRIPT}",
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 600,
            "backoffLimit": 2,
            "rayClusterSpec": {
                "rayVersion": RAY_VERSION,
                "authOptions": {"mode": "token"},
                "headGroupSpec": head,
                **({"workerGroupSpecs": [workers]} if plan.num_nodes > 1 else {}),
            },
        },
    }


def _metadata(plan: LaunchPlan, options: KubeRayOptions) -> dict[str, Any]:
    named = {"name": plan.name}
    return named | ({"namespace": options.namespace} if options.namespace else {})


def _pod(
    plan: LaunchPlan, options: KubeRayOptions, name: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """A pod with all GPUs of a node. Requests equal limits, so that no node is overcommitted."""
    amounts: dict[str, Any] = {"cpu": str(plan.cpus_per_node)}
    if plan.memory_gib is not None:
        amounts["memory"] = f"{plan.memory_gib}Gi"
    if plan.gpus_per_node:
        amounts["nvidia.com/gpu"] = str(plan.gpus_per_node)
    container = {
        "name": name,
        "image": options.image,
        "env": [*_settings(), *(_from_secret(key, options.secret) for key in plan.keys)],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "data", "mountPath": DATA},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount of the pod
        ],
        **extra,
    }
    volumes = [
        {"name": "config", "configMap": {"name": plan.name}},
        {"name": "data", "persistentVolumeClaim": {"claimName": options.claim}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"},
        },
    ]
    return {"spec": {"containers": [container], "volumes": volumes}}


def _settings() -> list[dict[str, Any]]:
    settings = {"PETTINGLLMS_MODELS": f"{DATA}/models", "RAY_worker_niceness": "0"}
    return [{"name": name, "value": value} for name, value in settings.items()]


def _from_secret(key: str, secret: str) -> dict[str, Any]:
    return {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
