"""Losses, one file each: options, declared needs, and a per-token objective."""

from pettingllms.learners.losses.base import Loss, LossInputs

__all__ = ["Loss", "LossInputs"]
