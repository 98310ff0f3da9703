"""Policy sections by kind, and reasons why a policy cannot fill a role."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pettingllms.config.section import Section
from pettingllms.config.template_options import TemplateValue, check_template_kwargs
from pettingllms.errors import UnknownNameError
from pettingllms.vision.families import ADVICE, supports_images


class EngineResources(Section):
    """Inference engines of one policy. Policies that share a base share its engines, so the values
    that they give must agree."""

    num_replicas: int | None = Field(default=None, ge=1)
    """Engines of the policy's model. Left out: inference.num_replicas."""
    tensor_parallel: int | None = Field(default=None, ge=1)
    """GPUs per engine. Left out: inference.tensor_parallel."""


class PolicyResources(EngineResources):
    """Inference engines and learner ranks of one policy. Policies that share a base share them, so
    the values that they give must agree."""

    num_ranks: int | None = Field(default=None, ge=1)
    """Processes, or GPUs, that the policy's learner is sharded over. Left out:
    learner.num_ranks."""


class PromptedPolicy(Section):
    """A policy whose prompts a chat template renders."""

    chat_template_kwargs: dict[str, TemplateValue] = Field(default_factory=dict)
    """Arguments of the model's chat template, such as `{ enable_thinking = false }` for Qwen3. They
    apply wherever prompts of the policy are rendered: training, evaluation, SFT, DPO, and exported
    models."""

    @field_validator("chat_template_kwargs")
    @classmethod
    def _known_kwargs(cls, given: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
        check_template_kwargs(given)
        return given


class TrainedPolicy(PromptedPolicy):
    """A policy that learns, and so is sampled from its whole distribution."""

    @classmethod
    def unknown_key(cls, key: str) -> str:
        """Say why training does not truncate."""
        if key not in ("top_p", "top_k"):
            return super().unknown_key(key)
        return (
            "training samples from the whole distribution, because a truncated one has no "
            f"probability ratio for the tokens that it excludes; set eval.{key} for evaluations"
        )


class FullPolicy(TrainedPolicy):
    """A model whose weights are all trained."""

    kind: Literal["full"] = "full"
    model: str
    """Folder or hub name of the model; `NAME@REVISION` pins a hub commit."""
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate."""
    join_step: int = Field(default=1, ge=1)
    """First step in which the policy learns. Until then it acts with its initial weights."""
    temperature: float = Field(default=1.0, ge=0.01)
    """Sampling temperature. Recorded and trained log-probs include it."""
    resources: PolicyResources | None = None
    """Engines and learner ranks, where they differ from the global numbers: `num_replicas`,
    `tensor_parallel`, `num_ranks`."""

    def unused_keys(self) -> set[str]:
        """Keys whose defaults change nothing."""
        return {"join_step"}


class LoraPolicy(TrainedPolicy):
    """A LoRA adapter on a base model that several policies can share."""

    kind: Literal["lora"] = "lora"
    model: str
    """Folder or hub name of the base model; `NAME@REVISION` pins a hub commit. Policies with the
    same base share it."""
    rank: int = Field(default=16, ge=1, le=512)
    """LoRA rank."""
    alpha: int = Field(default=32, ge=1)
    """LoRA alpha: the adapter's output is scaled by alpha / rank."""
    parts: list[Literal["language", "projector", "vision"]] = Field(
        default=["language"], min_length=1
    )
    """Parts of the model that get adapters. VLMs have a vision encoder (`vision`) and a projector
    from image features to token embeddings (`projector`) besides the language model (`language`);
    text-only models have only `language`."""
    target_modules: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Layers that get adapters: `all-linear`, or a list of names such as `["q_proj", "v_proj"]`,
    each of which matches the end of the names of linear layers. Never the output layer."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """LoRA dropout, applied only in the passes that compute gradients. Engines sample without it,
    so log-probs of the sampler, of the policy before the update and of the reference are computed
    without it too, at the cost of one more forward pass. Probability ratios then contain its
    noise: keep it small, such as 0.05."""
    lr: float = Field(default=1e-4, gt=0)
    """Learning rate."""
    join_step: int = Field(default=1, ge=1)
    """First step in which the policy learns. Until then it acts with its initial weights."""
    temperature: float = Field(default=1.0, ge=0.01)
    """Sampling temperature. Recorded and trained log-probs include it."""
    resources: PolicyResources | None = None
    """Engines and learner ranks, where they differ from the global numbers: `num_replicas`,
    `tensor_parallel`, `num_ranks`."""

    def unused_keys(self) -> set[str]:
        """Keys whose defaults change nothing."""
        return {"parts", "target_modules", "dropout", "join_step"}

    @property
    def supports_images_by(self) -> list[str]:
        """The adapted parts that change image embeddings."""
        return [part for part in self.parts if part != "language"]


class FrozenPolicy(PromptedPolicy):
    """A model that acts and never learns."""

    kind: Literal["frozen"] = "frozen"
    model: str
    """Folder or hub name of the model; `NAME@REVISION` pins a hub commit."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample only among the likeliest tokens whose probabilities reach this sum."""
    top_k: int = Field(default=0, ge=0)
    """Sample only among this many of the likeliest tokens; 0: all."""
    resources: EngineResources | None = None
    """Engines, where they differ from the global numbers: `num_replicas`, `tensor_parallel`."""


class ApiPolicy(PromptedPolicy):
    """A model on an OpenAI-compatible server. It never learns. `chat_template_kwargs` are sent with
    each request; vLLM and SGLang accept them."""

    kind: Literal["api"] = "api"
    url: str
    """Base URL of the server."""
    model: str
    """Name of the model on the server."""
    key: str = ""
    """Environment variable that holds the API key, such as OPENAI_API_KEY. Empty: no key is sent.
    The key is never written to disk."""
    supports_images: bool = False
    """Whether the served model accepts images. This cannot be detected before a run starts."""
    max_concurrent: int = Field(default=64, ge=1)
    """Maximum requests in flight. Further requests queue without counting toward
    rollout.sampler_timeout. Set it to the server's concurrency: time in the server's queue
    counts."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample only among the likeliest tokens whose probabilities reach this sum."""
    top_k: int = Field(default=0, ge=0)
    """Sample only among this many of the likeliest tokens; 0: all. No part of OpenAI's API;
    vLLM and SGLang read it."""


class ScriptedPolicy(Section):
    """A scripted player of the environment. It never learns."""

    kind: Literal["scripted"] = "scripted"
    player: str = "random"
    """Name of the player, as listed by `pettingllms list envs`."""


PolicyConfig = Annotated[
    FullPolicy | LoraPolicy | FrozenPolicy | ApiPolicy | ScriptedPolicy,
    Field(discriminator="kind"),
]
"""A policy of any kind; `kind` selects the class."""

TRAINED_KINDS = ("full", "lora")


def resource_problems(policies: Mapping[str, Any]) -> Iterator[str]:
    """Policies that share a base and give different numbers for the engines or ranks of it."""
    given: dict[tuple[str, str], tuple[str, int]] = {}
    for name, policy in policies.items():
        resources = getattr(policy, "resources", None)
        if resources is None or policy.kind == "full":
            continue
        for key, value in resources.model_dump(exclude_none=True).items():
            mine = f"policies.{name}.resources.{key}"
            other, first = given.setdefault((policy.model, key), (mine, value))
            if first != value:
                what = "learner" if key == "num_ranks" else "engines"
                yield (
                    f"{mine}: is {value}, but {other} is {first}, and both policies share the "
                    f"{what} of '{policy.model}'; set one value, or give it to one of them only"
                )


def unknown_targets(policy: LoraPolicy, layers: Iterable[str]) -> list[str]:
    """The entries of `target_modules` that match no layer; `layers` are full names."""
    if policy.target_modules == "all-linear":
        return []
    known = [f".{layer}" for layer in layers]
    wanted = policy.target_modules
    return [name for name in wanted if not any(one.endswith(f".{name}") for one in known)]


def target_problem(unknown: Iterable[str], layers: Iterable[str]) -> str:
    """The message about layers that a model does not have."""
    names = sorted({layer.rpartition(".")[2] for layer in layers})
    wrong = ", ".join(f"'{name}'" for name in unknown)
    return f"target_modules: the model has no layer {wrong}; choose from {', '.join(names)}"


def player_problems(env: Any, key: str, names: Iterable[str]) -> Iterator[str]:
    """Scripted players under a key that the environment does not have.

    The environment itself decides, because `minimax~0.3` is valid wherever `minimax` is.
    """
    for name in names:
        try:
            env.player(name)
        except UnknownNameError as error:
            yield f"{key}: {error}"


def image_problem(policy: PolicyConfig, model: Path | None = None) -> str:
    """Why a policy cannot fill a role that is shown images; empty if it can.

    `model` is the folder of its model, if known. A model that is named and not yet found passes.
    """
    match policy.kind:
        case "scripted":
            return ""  # reads the state
        case "api":
            reason = f"the served model ('{policy.model}') is sent only text"
            advice = "set supports_images = true if it accepts images"
            return "" if policy.supports_images else f"{reason}; {advice}"
        case _:
            folder = model or Path(policy.model).expanduser()
            known = (folder / "config.json").is_file()
            text_only = known and not supports_images(folder)
            return f"'{policy.model}' is text-only; {ADVICE}" if text_only else ""
