"""Inference engines, one file each: declared capabilities, sampling, scoring, weight updates."""

from pettingllms.inference.engines.base import Capabilities, EngineSpec, InferenceEngine

__all__ = ["Capabilities", "EngineSpec", "InferenceEngine"]
