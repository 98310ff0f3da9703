"""Commands of the panel Evaluate: `eval`, `tournament`, `match` and `reproduce`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pettingllms.cli.options import (
    Checkpoint,
    EnvName,
    EnvOptions,
    Json,
    Keys,
    MaxTokens,
    Out,
    Overrides,
    Seconds,
    Seed,
    Temperature,
)

SUITES = "With --suite"
KEYS = {"tasks": "eval.num_tasks", "samples": "eval.num_samples", "temperature": "eval.temperature"}
"""Options of suites, and the config keys for a run's own test tasks."""


def evaluate(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Run folder or TOML file. With --suite also a model's folder or name, or "
            "http://HOST:PORT/v1\\[#MODEL].",
            show_default=False,
        ),
    ] = "",
    overrides: Overrides = None,
    checkpoint: Checkpoint = None,
    out: Out = None,
    exploitability: Annotated[
        bool,
        typer.Option("--exploitability", help="Also report the distance from equilibrium play."),
    ] = False,
    as_json: Json = False,
    suite: Annotated[
        str,
        typer.Option(
            help="Run benchmarks: a name of `list suites`, such as aime, or a TOML file.",
            rich_help_panel=SUITES,
        ),
    ] = "",
    player: Annotated[
        str, typer.Option(help="Evaluate a scripted player instead of RUN.", rich_help_panel=SUITES)
    ] = "",
    policy: Annotated[
        str,
        typer.Option(help="Policy for roles that the run does not have.", rich_help_panel=SUITES),
    ] = "",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks per benchmark.", rich_help_panel=SUITES)
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes per task, the k of pass@k.", rich_help_panel=SUITES),
    ] = None,
    bench: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Run only the benchmark of this name, or those with this in their names; "
            "repeatable.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Environment option of all benchmarks, such as test_data=gsm8k:rows.jsonl; "
            "repeatable.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with a results.json of another evaluation, paired by task.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.", rich_help_panel=SUITES)] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Sampling temperature; 0 is greedy.", rich_help_panel=SUITES),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Timeout per reply, in seconds.", rich_help_panel=SUITES),
    ] = 600.0,
    concurrent: Annotated[
        int, typer.Option(min=1, help="Episodes in parallel.", rich_help_panel=SUITES)
    ] = 64,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable with the server's API key.", rich_help_panel=SUITES
        ),
    ] = None,
    skip_missing: Annotated[
        bool,
        typer.Option(
            "--skip-missing",
            help="Skip benchmarks whose package, program or data is not on this machine.",
            rich_help_panel=SUITES,
        ),
    ] = False,
) -> None:
    """Measure success, avg@k and pass@k per role on test tasks or benchmark suites."""
    _reject_other_options(context, bool(suite))
    if not suite:
        from pettingllms.cli.eval import evaluate_policies

        if not run:
            raise typer.BadParameter("give a run folder, or --suite", param_hint="RUN")
        evaluate_policies(Path(run), overrides or [], checkpoint, out, as_json, exploitability)
        return
    from pettingllms.cli.eval_suite import Order, evaluate_suite
    from pettingllms.evaluation.suites.rollouts import Settings

    order = Order(
        suite, run, player, overrides or [], checkpoint, policy, tasks, samples, bench or [],
        option or [], compare, key or [], skip_missing, out, as_json,
    )  # fmt: skip
    evaluate_suite(order, Settings(seed, concurrent, seconds, temperature))


def _reject_other_options(context: typer.Context, of_suites: bool) -> None:
    """Reject options that would be ignored, with or without --suite."""
    for param in _given(context):
        if of_suites and param.name == "exploitability":
            raise typer.BadParameter(
                "benchmarks have no exploitability; leave out --suite or --exploitability",
                param=param,
            )
        if not of_suites and param.name != "suite" and param.rich_help_panel == SUITES:
            instead = ""
            if key := KEYS.get(param.name):
                number = context.params[param.name]
                instead = f"; give {key}={number:g} for a run's own test tasks"
            raise typer.BadParameter(
                f"is for benchmarks; add --suite NAME, or leave it out{instead}", param=param
            )


def _given(context: typer.Context) -> list[Any]:
    """The parameters that were given on the command line."""
    params: list[Any] = context.command.params
    sources = [context.get_parameter_source(param.name) for param in params]
    return [
        param
        for param, source in zip(params, sources, strict=True)
        if source is not None and source.name == "COMMANDLINE"
    ]


def tournament(
    env: EnvName,
    options: EnvOptions = None,
    player: Annotated[
        list[str] | None,
        typer.Option(
            help="Player; repeatable: a scripted player (minimax, minimax~0.3), a run FOLDER, a "
            "snapshot FOLDER@20, all snapshots FOLDER@all, or a server http://HOST/v1#MODEL. "
            "NAME= before it renames it."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; in each, every pair plays in all roles.")
    ] = 20,
    seed: Seed = 0,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Temperature of all policies; 0 is greedy.")
    ] = None,
    key: Keys = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Rate runs, snapshots, servers and scripted players in a round-robin tournament."""
    from pettingllms.cli.tournament import Settings, play_tournament

    settings = Settings(rounds, seed, temperature, key or [], out, as_json)
    play_tournament(env, options or [], player or [], settings)


def match(
    env: EnvName,
    server: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="Such as http://127.0.0.1:8000/v1[#MODEL].", show_default=False
        ),
    ],
    options: EnvOptions = None,
    against: Annotated[
        str, typer.Option(help="Opponent: a scripted player, a run folder or an address.")
    ] = "random",
    role: Annotated[
        str | None, typer.Option(help="Role of the model. Default: every role equally often.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Games to play.")] = 10,
    seed: Seed = 0,
    concurrent: Annotated[int, typer.Option(min=1, help="Games in parallel.")] = 8,
    out: Annotated[
        Path, typer.Option("--out", "--logs", metavar="FOLDER", help="Folder to write logs to.")
    ] = Path("logs"),
    key: Keys = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 120.0,
) -> None:
    """Play games with a model on an OpenAI-compatible server, and log every reply."""
    from pettingllms.cli.match import run_match
    from pettingllms.evaluation.match.rounds import Limits

    limits = Limits(rounds, seed, concurrent, max_tokens, seconds)
    run_match(env, options or [], (server, against), role, limits, out, key or [], temperature)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Experiment such as tic_tac_toe, or its folder. Without a name, the error "
            "message lists all names.",
            show_default=False,
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Smoke run in minutes; exit code 1 if it fails.")
    ] = False,
    seed: Annotated[list[int] | None, typer.Option(help="Run only this seed; repeatable.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Run only this arm; repeatable.")] = None,
    out: Out = None,
    experiments: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the experiments. Default: those shipped."),
    ] = None,
    docs: Annotated[
        bool, typer.Option("--docs", help="Copy table, figure, slides and numbers to docs/results.")
    ] = False,
    join: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Add the seeds of another results.json; repeatable."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Warm starts and arms in parallel, on CPUs.")
    ] = 1,
) -> None:
    """Run an experiment, or the missing parts, and write its table, figure and slides."""
    from pettingllms.cli.reproduce import reproduce_experiment

    reproduce_experiment(
        name, experiments, quick, seed or [], out, docs, join or [], jobs, arm or []
    )
