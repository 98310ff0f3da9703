"""What a simulation assumes about work and hardware, where neither the config nor a calibration
tells."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from pettingllms.errors import ConfigError, nearest

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumed numbers. Each can be set by `--assume NAME=VALUE`."""

    prompt_tokens: int = 512
    """Tokens of the first prompt of each role, equal for all episodes of a task."""
    turns: int = 0
    """Decisions per episode. 0: one per role that a policy plays, in turn. Each later prompt also
    contains the reply before it."""
    reply_median: float = 0.0
    """Median of the reply lengths, which are lognormal. 0: an eighth of rollout.max_reply_tokens,
    where replies are cut."""
    reply_sigma: float = 1.0
    """Standard deviation of the logarithm of reply lengths: 0 for equal lengths. 1 gives a long
    tail, whose longest 2% of replies are cut at eight times the median."""
    reply_task_share: float = 0.5
    """Share of that variance that is between tasks: the replies of a hard task are all long."""
    env_seconds: float = 0.1
    """Time of an environment step, such as a sandboxed test. Steps run side by side."""
    worker_seconds: float = 0.0005
    """CPU time of a rollout worker per turn. Turns of a worker run one after another."""
    cores_per_node: int = 96
    """CPU cores of a node, which bound the number of rollout workers."""
    learner_mfu: float = 0.4
    """Share of the peak arithmetic that learners reach."""
    engine_mfu: float = 0.5
    """Share of the peak arithmetic that engines reach, in prompts and in large batches."""
    engine_bandwidth: float = 0.7
    """Share of the peak memory bandwidth that engines reach."""
    engine_overhead: float = 0.004
    """Seconds per decoding step beyond arithmetic and memory."""
    allreduce_seconds: float = 15e-6
    """Seconds of each of the two exchanges per layer between the GPUs of an engine."""
    request_seconds: float = 0.005
    """Seconds from a rollout worker to an engine and back."""
    network_gbit: float = 400.0
    """Network bandwidth per GPU between nodes, in Gbit/s."""
    link_share: float = 0.7
    """Share of the peak bandwidth that transfers between GPUs reach."""
    store_gbyte: float = 2.0
    """Bandwidth in GB/s at which the files of an adapter reach all engines."""
    step_seconds: float = 2.0
    """Seconds of the driver per step: credit assignment, metrics, calls to learners."""
    update_seconds: float = 0.5
    """Seconds per optimizer update beyond arithmetic, memory and exchange."""
    canary_seconds: float = 1.0
    """Seconds to check published weights, per policy."""
    sleep_seconds: float = 5.0
    """Colocated: seconds for engines to free their memory or to take it again."""
    slow_share: float = 0.02
    """Share of engines that are slow."""
    slow_factor: float = 1.5
    """How many times as long a slow engine takes."""
    mtbf_hours: float = 50_000.0
    """Hours that a GPU runs between failures of its process. 0: no failures."""
    engine_restart_seconds: float = 180.0
    """Seconds until an engine that failed serves again. Its requests start over."""
    learner_restart_seconds: float = 300.0
    """Seconds until a learner that lost a rank works again. It repeats its update."""
    num_tasks: int = 20_000
    """Training tasks, if the simulated steps need no more."""

    @property
    def mtbf_seconds(self) -> float:
        """Seconds between failures of one GPU."""
        return self.mtbf_hours * HOUR


def read_assumptions(texts: Sequence[str], known: Assumptions | None = None) -> Assumptions:
    """Assumptions with some replaced by texts such as `reply_sigma=0.5`."""
    types = {field.name: field.type for field in fields(Assumptions)}
    values: dict[str, float] = {}
    problems = []
    for text in texts:
        name, _, value = text.partition("=")
        if name not in types:
            problems.append(f"unknown assumption '{name}'; {nearest(name, types)}")
            continue
        try:
            number = int(value) if types[name] is int else float(value)
        except ValueError:
            problems.append(f"{name}: got '{value}', expected a number")
            continue
        if number < 0:
            problems.append(f"{name}: got {value}, expected 0 or more")
        values[name] = number
    if problems:
        raise ConfigError("--assume", problems)
    return replace(known or Assumptions(), **values)  # type: ignore[arg-type]
