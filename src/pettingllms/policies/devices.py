"""How many GPUs a run needs, counted before anything is started."""

from collections.abc import Sequence

from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies.plan import ModelGroup, plan_critics


def num_engines(config: RunConfig, groups: Sequence[ModelGroup]) -> int:
    """Inference engines of a run."""
    return len(groups) * config.inference.num_replicas


def num_learner_ranks(config: RunConfig, groups: Sequence[ModelGroup]) -> int:
    """Learner processes of a run, over all trained models and critics."""
    models = sum(bool(group.trained) for group in groups) + len(plan_critics(config))
    return models * config.learner.num_ranks


def num_gpus_needed(config: RunConfig, groups: Sequence[ModelGroup]) -> int:
    """GPUs that a run needs: one per learner rank and `tensor_parallel` per engine."""
    if config.cluster.placement == "colocated":
        return 1
    engines = num_engines(config, groups) * config.inference.tensor_parallel
    return engines + num_learner_ranks(config, groups)


def check_resources(config: RunConfig, groups: Sequence[ModelGroup], num_gpus: float) -> None:
    """Raise ClusterError if there are too few GPUs: Ray would wait for more without a message."""
    can = config.inference.capabilities
    if not can.gpu:
        raise ClusterError(
            f'inference.engine = "{config.inference.engine}" runs only on CPU; set cluster.device '
            '= "cpu", or leave inference.engine out'
        )
    engines, ranks = num_engines(config, groups), num_learner_ranks(config, groups)
    if config.cluster.placement == "colocated":
        if not can.pause:
            raise ClusterError(
                f'inference.engine = "{config.inference.engine}" cannot free its memory while '
                'learners work; set cluster.placement = "separate"'
            )
        if engines > 1 or ranks > 1 or config.inference.tensor_parallel > 1:
            raise ClusterError(
                'cluster.placement = "colocated" is for one model with one engine on one GPU; this '
                f"run has {engines} engines of {config.inference.tensor_parallel} GPUs and {ranks} "
                'ranks. Set cluster.placement = "separate"'
            )
        return
    needed = num_gpus_needed(config, groups)
    if needed > num_gpus:
        raise ClusterError(
            f"the run needs {needed} GPUs ({engines} engines of {config.inference.tensor_parallel} "
            f"and {ranks} learner ranks), but only {num_gpus:g} were found; lower "
            "inference.num_replicas or learner.num_ranks, or with one of each set "
            'cluster.placement = "colocated"'
        )
