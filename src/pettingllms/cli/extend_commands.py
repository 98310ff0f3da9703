"""Commands of the panel Extend: `check-env` and `bench`; others have modules."""

from typing import Annotated, Literal

import typer

from pettingllms.cli.options import EnvName, EnvOptions, Json

bench_app = typer.Typer(help="Measure the overhead of the system.", no_args_is_help=True)
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
ModelFolder = Annotated[str, typer.Option(metavar="FOLDER", help="Folder or name of the model.")]
Repeats = Annotated[int, typer.Option(min=1, help="Repetitions; the median is reported.")]


def check_env(
    env: EnvName,
    options: EnvOptions = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit, in seconds.")] = 120,
) -> None:
    """Test an environment against the contract and list its faults."""
    from pettingllms.cli.envs import check_contract

    check_contract(env, options or [], episodes, seconds)


@bench_app.command("rollout")
def bench_rollout(
    episodes: Annotated[int, typer.Option(min=200, help="Episodes in parallel.")] = 10_000,
    repeats: Repeats = 5,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Measure this number of rollout workers instead. Repeatable."),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of 8 episodes, for --workers.")] = 64,
    model: ModelFolder = SMOLLM2,
    as_json: Json = False,
) -> None:
    """Measure time per turn with few and many parallel episodes, and memory per episode. With
    --workers, measure rollout workers under Ray at 4k-token prompts with an engine that waits."""
    if workers:
        from pettingllms.cli.bench_workers import print_workers_bench

        print_workers_bench(model, workers, tasks, as_json)
        return
    from pettingllms.cli.bench import print_rollout_bench

    print_rollout_bench(episodes, repeats, as_json)


@bench_app.command("engine")
def bench_engine(
    model: ModelFolder = SMOLLM2,
    requests: Annotated[int, typer.Option(min=1, help="Replies in parallel.")] = 64,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Compare rollouts with plain vLLM, and the learner with plain PyTorch."""
    from pettingllms.cli.bench import print_engine_bench

    print_engine_bench(model, requests, repeats, as_json)


@bench_app.command("sampling")
def bench_sampling(
    model: ModelFolder = SMOLLM2,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Type of the weights.")
    ] = "float32",
    requests: Annotated[int, typer.Option(min=1, help="Replies in parallel.")] = 64,
    adapters: Annotated[int, typer.Option(min=1, help="LoRA adapters in a batch.")] = 1,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Compare LoRA sampling on CPU with vLLM's own kernels, and with no adapter."""
    from pettingllms.cli.bench import print_sampling_bench

    print_sampling_bench(model, dtype, requests, adapters, repeats, as_json)


@bench_app.command("publish")
def bench_publish(
    model: ModelFolder = SMOLLM2,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Type of the engines' weights.")
    ] = "float32",
    ranks: Annotated[int, typer.Option(min=1, help="Ranks of the learner.")] = 2,
    replicas: Annotated[int, typer.Option(min=1, help="Engines.")] = 2,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Compare streaming a full model to its engines with files."""
    from pettingllms.cli.bench import print_publish_bench

    print_publish_bench(model, dtype, ranks, replicas, repeats, as_json)


@bench_app.command("adapters")
def bench_adapters(
    model: ModelFolder = SMOLLM2,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Type of the arithmetic.")
    ] = "float32",
    policies: Annotated[int, typer.Option(min=2, help="LoRA policies to compare with one.")] = 8,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Compare several LoRA policies on one base with one policy, on the same prompts."""
    from pettingllms.cli.bench import print_adapters_bench

    print_adapters_bench(model, dtype, policies, repeats, as_json)


@bench_app.command("learner")
def bench_learner(
    model: ModelFolder = SMOLLM2, repeats: Repeats = 3, as_json: Json = False
) -> None:
    """Compare learning from token trees with padded rows, in CPU-seconds."""
    from pettingllms.cli.bench import print_learner_bench

    print_learner_bench(model, repeats, as_json)


@bench_app.command("gateway")
def bench_gateway(
    sessions: Annotated[int, typer.Option(min=1, max=20_000, help="Concurrent sessions.")] = 2000,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="Gateways.")] = 2,
    calls: Annotated[int, typer.Option(min=1, max=100, help="Calls per session.")] = 2,
    delay: Annotated[float, typer.Option(min=0, max=600, help="Delay of the engine, in s.")] = 30,
    as_json: Json = False,
) -> None:
    """Measure the latency that gateways add with and without a router, and check all records."""
    from pettingllms.cli.bench_gateway import print_gateway_bench

    print_gateway_bench(sessions, replicas, calls, delay, as_json)


@bench_app.command("sandbox")
def bench_sandbox(
    programs: Annotated[int, typer.Option(min=1, help="Programs per repetition.")] = 200,
    tier: Annotated[
        str, typer.Option(help="bubblewrap or namespaces. Default: the strongest available.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Measure programs per second in the sandbox, with cold and warm start."""
    from pettingllms.cli.bench import print_sandbox_bench

    print_sandbox_bench(programs, tier, as_json)
