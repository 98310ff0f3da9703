"""How many GPUs a run needs, counted before anything is started."""

from collections.abc import Sequence

from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies.plan import ModelGroup, plan_critics


def check_resources(config: RunConfig, groups: Sequence[ModelGroup], num_gpus: float) -> None:
    """Say so if there are too few GPUs: Ray would wait for more without a word."""
    can = config.inference.capabilities
    if not can.gpu:
        raise ClusterError(
            f'inference.engine = "{config.inference.engine}" runs only on CPU; set cluster.device '
            '= "cpu", or leave inference.engine out'
        )
    engines = len(groups) * config.inference.num_replicas
    models = sum(bool(group.trained) for group in groups) + len(plan_critics(config))
    ranks = models * config.learner.num_ranks
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
    needed = engines * config.inference.tensor_parallel + ranks
    if needed > num_gpus:
        raise ClusterError(
            f"the run needs {needed} GPUs ({engines} engines of {config.inference.tensor_parallel} "
            f"and {ranks} learner ranks), there are {num_gpus:g}; lower inference.num_replicas or "
            'learner.num_ranks, or with one of each set cluster.placement = "colocated"'
        )
