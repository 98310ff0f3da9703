"""Visual relay, `visual_relay-v1`."""

from pettingllms.envs.puzzles.visual_relay.env import VisualRelay, VisualRelayConfig

__all__ = ["VisualRelay", "VisualRelayConfig"]
