"""What a plan does without: data and models that are not on this machine."""

from collections.abc import Iterator

from pettingllms.config import RunConfig
from pettingllms.datasets.sources import Source, parse_source
from pettingllms.datasets.store import default_split, stored_files
from pettingllms.errors import DataError, MissingDataError, ModelError
from pettingllms.models.folder import find_model
from pettingllms.policies import plan_critics, plan_models
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.model_size import ModelSize, read_size, size_of

QWEN3 = {
    "0.6B": (1024, 28, 16, 3072, True),
    "1.7B": (2048, 28, 16, 6144, True),
    "4B": (2560, 36, 32, 9728, True),
    "8B": (4096, 36, 32, 12288, False),
    "14B": (5120, 40, 40, 17408, False),
    "32B": (5120, 64, 64, 25600, False),
}
"""Hidden size, layers, heads, MLP size, and whether the output layer is the embedding."""
SMOLLM2_135M = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
"""The model of most shipped configurations."""


def find_absent_data(config: RunConfig) -> Iterator[Finding]:
    """A note on the data that must be fetched before the run."""
    missing = [source.to_get for source in _missing_data(config)]
    if missing:
        what = f"not on this machine: the data {' and '.join(missing)}"
        yield Finding("note", what, _to_fetch("data", missing))


def find_absent(config: RunConfig) -> Iterator[Finding]:
    """Notes on data and models that a plan does without and a run needs."""
    yield from find_absent_data(config)
    models = [model for model in _models(config) if not _is_here(model)]
    if models:
        what = f"not on this machine: {', '.join(models)}; the plan has its published size"
        yield Finding("note", what, _to_fetch("models", models))


def _to_fetch(kind: str, names: list[str]) -> str:
    return "before training, run " + " and ".join(f"`pettingllms {kind} get {n}`" for n in names)


def size_here_or_published(model: str) -> ModelSize:
    """The size of a model: of its folder, or the published one if it is not here."""
    try:
        return read_size(find_model(model))
    except ModelError:
        published = published_size(model)
        if published is None or _is_here(model):
            raise
        return published


def published_size(model: str) -> ModelSize | None:
    """The size of a Qwen3 or of SmolLM2-135M by its name on the hub; None for other models."""
    name = model.partition("@")[0]
    if name in ("HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        return size_of(SMOLLM2_135M)
    known = {f"Qwen/Qwen3-{size}{end}": size for size in QWEN3 for end in ("", "-Base")}
    return size_of(qwen3_config(known[name])) if name in known else None


def qwen3_config(name: str) -> dict[str, object]:
    """What the config.json of a size of Qwen3 says about its dimensions."""
    hidden, layers, heads, mlp, tied = QWEN3[name]
    return {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": mlp,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": tied,
    }


def _is_here(model: str) -> bool:
    try:
        find_model(model)
    except ModelError:
        return False
    return True


def _models(config: RunConfig) -> list[str]:
    found = [group.model for group in plan_models(config)]
    return list(dict.fromkeys([*found, *(plan.model for plan in plan_critics(config))]))


def _missing_data(config: RunConfig) -> Iterator[Source]:
    found: dict[str, Source] = {}
    for key, split in (("data", "train"), ("test_data", "test")):
        text = getattr(config.env, key, "")
        if not isinstance(text, str) or not text:
            continue
        try:
            source = parse_source(text)
            if source.kind != "file":
                stored_files(source, default_split(source, split))
        except MissingDataError:
            found[source.to_get] = source
        except DataError:
            continue  # a name that the environment itself reads
    yield from found.values()
