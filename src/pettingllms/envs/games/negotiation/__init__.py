"""Negotiation, `negotiation-v1`."""

from pettingllms.envs.games.negotiation.env import Negotiation, NegotiationConfig

__all__ = ["Negotiation", "NegotiationConfig"]
