"""Policies by kind: who answers for a role, and whether it learns."""

from typing import Annotated, Literal

from pydantic import Field

from pettingllms.config.section import Section


class FullPolicy(Section):
    """A model of its own, all of whose weights are trained."""

    kind: Literal["full"] = "full"
    model: str
    """Folder or hub name of the model."""


class LoraPolicy(Section):
    """A LoRA adapter over a base that other policies may share."""

    kind: Literal["lora"] = "lora"
    model: str
    """Folder or hub name of the base. Policies that name the same base share it."""
    rank: int = Field(default=16, ge=1)
    """Rank of the adapter."""


class FrozenPolicy(Section):
    """A model that answers and never learns."""

    kind: Literal["frozen"] = "frozen"
    model: str
    """Folder or hub name of the model."""


class ApiPolicy(Section):
    """A model behind an OpenAI-compatible server; it never learns."""

    kind: Literal["api"] = "api"
    url: str
    """Base URL of the server."""
    model: str
    """Name of the model there."""


class ScriptedPolicy(Section):
    """One of the environment's own scripted players; it never learns."""

    kind: Literal["scripted"] = "scripted"
    player: str = "random"
    """Name of the player, as `pettingllms envs` lists them."""


PolicyConfig = Annotated[
    FullPolicy | LoraPolicy | FrozenPolicy | ApiPolicy | ScriptedPolicy,
    Field(discriminator="kind"),
]

TRAINED_KINDS = ("full", "lora")
