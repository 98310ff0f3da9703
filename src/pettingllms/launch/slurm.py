"""Slurm: a batch script. Several nodes form a Ray cluster whose token exists only in the job."""

import shlex
from dataclasses import dataclass

from pettingllms.launch.plan import LaunchPlan
from pettingllms.launch.shell import (
    OWN_ADDRESS,
    RAY_SETTINGS,
    exports,
    require_variables,
    train_lines,
    wait_for_nodes,
)

CONFIG = "run.toml"
SCRIPT = "job.sbatch"
SAVE_SECONDS = 600
"""Seconds before the time limit at which the run is asked to save and stop."""

CLUSTER = """\
# One Ray node per machine. The token lives in the environment of this job only.
token=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN=$token
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# As the second node sees the first one: a host file may map a machine's own name to 127.0.1.1.
head_address=$(srun --overlap --nodes=1 --ntasks=1 --relative=1 getent ahostsv4 "${{hosts[0]}}" |
    awk '!found++ {{print $1}}')
case $head_address in
    "" | 127.*)
        echo "no address of ${{hosts[0]}} that other nodes reach: '$head_address'" >&2
        exit 1
        ;;
esac
export HEAD_ADDRESS=$head_address
export RAY_ADDRESS=$HEAD_ADDRESS:$((20000 + SLURM_JOB_ID % 10000))
export RAY_FOLDER=/tmp/ray-$SLURM_JOB_ID
# shellcheck disable=SC2016 # each node expands these
srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 \\
    --cpus-per-task={cpus} --kill-on-bad-exit=0 bash -euc '
    mkdir -p -m 700 "$RAY_FOLDER"
    trap "rm -rf \\"$RAY_FOLDER\\"" EXIT
    if [ "$SLURM_NODEID" = 0 ]; then
        ray start --head --block --node-ip-address="$HEAD_ADDRESS" --port="${{RAY_ADDRESS##*:}}" \\
            --temp-dir="$RAY_FOLDER" --include-dashboard=false --num-cpus={cpus} --num-gpus={gpus}
    else
        own=$(python -c "$OWN_ADDRESS" "$HEAD_ADDRESS")
        for _ in $(seq 60); do
            timeout 2 bash -c "exec 3<>/dev/tcp/${{RAY_ADDRESS/://}}" 2> /dev/null && break
            sleep 2
        done
        ray start --block --address="$RAY_ADDRESS" --node-ip-address="$own" \\
            --num-cpus={cpus} --num-gpus={gpus}
    fi
' &
cluster=$!
trap 'kill "$cluster" 2> /dev/null || true' EXIT
{wait}"""

RUN = """\
train() {{
{train}
}}

# Slurm sends USR1 before the time limit: the run saves a checkpoint and stops. Submit the script
# again to resume it.
train &
training=$!
trap 'kill -INT "$training" 2> /dev/null || true' USR1
code=0
while true; do
    wait "$training" && code=0 || code=$?
    kill -0 "$training" 2> /dev/null || break
done
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a site decides."""

    time: str = "24:00:00"
    partition: str = ""
    account: str = ""


def slurm_files(plan: LaunchPlan, options: SlurmOptions) -> dict[str, str]:
    """The files of a launch by name."""
    return {SCRIPT: _script(plan, options), CONFIG: plan.toml}


def _script(plan: LaunchPlan, options: SlurmOptions) -> str:
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH --{key}={value}" for key, value in _directives(plan, options).items()),
        "set -euo pipefail",
        "",
        'cd "${SLURM_SUBMIT_DIR:-.}"',
        f"if [ ! -f {CONFIG} ]; then",
        f'    echo "no {CONFIG} here; submit the script from its folder: sbatch {SCRIPT}" >&2',
        "    exit 1",
        "fi",
        *plan.setup,
        *require_variables(plan.keys),
        "",
    ]
    if plan.is_cluster:
        lines += [*exports(RAY_SETTINGS), f"export OWN_ADDRESS={shlex.quote(OWN_ADDRESS)}"]
        lines.append(
            CLUSTER.format(
                nodes=plan.num_nodes,
                cpus=plan.cpus_per_node,
                gpus=plan.gpus_per_node,
                wait=wait_for_nodes(plan.num_nodes),
            )
        )
    train = train_lines(plan, CONFIG, f"runs/{plan.name}", cluster=plan.is_cluster)
    lines.append(RUN.format(train="\n".join(f"    {line}" for line in train)))
    return "\n".join(lines)


def _directives(plan: LaunchPlan, options: SlurmOptions) -> dict[str, str]:
    """Options of sbatch. Without a plan of host memory, a node's whole memory is asked for."""
    optional = {"partition": options.partition, "account": options.account}
    gpus = {"gpus-per-node": str(plan.gpus_per_node)} if plan.gpus_per_node else {}
    memory = "0" if plan.memory_gib is None else f"{plan.memory_gib}G"
    return {
        "job-name": plan.name,
        "nodes": str(plan.num_nodes),
        "ntasks-per-node": "1",
        **gpus,
        "cpus-per-task": str(plan.cpus_per_node),
        "mem": memory,
        "time": options.time,
        **{key: value for key, value in optional.items() if value},
        "signal": f"B:USR1@{SAVE_SECONDS}",
        "output": "%x-%j.log",
    }
