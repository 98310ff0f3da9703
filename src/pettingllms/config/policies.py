"""Policies by kind: who answers for a role, and whether it learns."""

from typing import Annotated, Literal

from pydantic import Field

from pettingllms.config.section import Section


class FullPolicy(Section):
    """A model of its own, all of whose weights are trained."""

    kind: Literal["full"] = "full"
    model: str
    """Folder or hub name of the model; `NAME@REVISION` pins a commit of the hub."""
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate."""
    join_step: int = Field(default=1, ge=1)
    """First step in which it learns; before it, the policy plays with the weights it began with."""
    temperature: float = Field(default=1.0, ge=0.01)
    """Of sampling. It is part of the log-probs that are recorded and trained on."""

    def unused_keys(self) -> set[str]:
        """Keys whose defaults change nothing."""
        return {"join_step"}


class LoraPolicy(Section):
    """A LoRA adapter over a base that other policies may share."""

    kind: Literal["lora"] = "lora"
    model: str
    """Folder or hub name of the base; `NAME@REVISION` pins a commit of the hub. Policies that name
    the same base share it."""
    rank: int = Field(default=16, ge=1, le=512)
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1)
    """Scale of the adapter: what it adds counts alpha / rank times."""
    parts: list[Literal["language", "projector", "vision"]] = Field(
        default=["language"], min_length=1
    )
    """Where the adapter is. A model that sees has eyes (vision) and what turns their pictures into
    tokens (projector) beside its language model; one that only reads has nothing but language."""
    lr: float = Field(default=1e-4, gt=0)
    """Learning rate."""
    join_step: int = Field(default=1, ge=1)
    """First step in which it learns; before it, the policy plays with the weights it began with."""
    temperature: float = Field(default=1.0, ge=0.01)
    """Of sampling. It is part of the log-probs that are recorded and trained on."""

    def unused_keys(self) -> set[str]:
        """Keys whose defaults change nothing."""
        return {"parts", "join_step"}

    @property
    def supports_images_by(self) -> list[str]:
        """The parts of the adapter that change how images are seen."""
        return [part for part in self.parts if part != "language"]


class FrozenPolicy(Section):
    """A model that answers and never learns."""

    kind: Literal["frozen"] = "frozen"
    model: str
    """Folder or hub name of the model; `NAME@REVISION` pins a commit of the hub."""
    temperature: float = Field(default=1.0, ge=0)
    """Of sampling; 0 is greedy."""


class ApiPolicy(Section):
    """A model behind an OpenAI-compatible server; it never learns."""

    kind: Literal["api"] = "api"
    url: str
    """Base URL of the server."""
    model: str
    """Name of the model there."""
    key: str = ""
    """Name of the environment variable that holds the key, such as OPENAI_API_KEY; empty: no key is
    sent. The key itself is never written anywhere."""
    supports_images: bool = False
    """Whether the model there takes images, which nobody can ask it before a run starts."""
    max_concurrent: int = Field(default=64, ge=1)
    """Requests in flight at once; the others wait, off the clock of rollout.sampler_timeout. Set it
    to what the server serves at once: time in the server's own queue counts."""
    temperature: float = Field(default=1.0, ge=0)
    """Of sampling; 0 is greedy."""


class ScriptedPolicy(Section):
    """One of the environment's own scripted players; it never learns."""

    kind: Literal["scripted"] = "scripted"
    player: str = "random"
    """Name of the player, as `pettingllms envs` lists them."""


PolicyConfig = Annotated[
    FullPolicy | LoraPolicy | FrozenPolicy | ApiPolicy | ScriptedPolicy,
    Field(discriminator="kind"),
]
"""A policy of any kind, told apart by `kind`."""

TRAINED_KINDS = ("full", "lora")
