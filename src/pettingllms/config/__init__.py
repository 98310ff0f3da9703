"""Configuration: TOML with dotted overrides, read by strict pydantic models."""

from pettingllms.config.load import load_config, parse_config, to_toml
from pettingllms.config.policies import PolicyConfig
from pettingllms.config.run import RewardConfig, RolloutConfig, RunConfig
from pettingllms.config.section import AlgoConfig, EnvConfig, Section

__all__ = [
    "AlgoConfig",
    "EnvConfig",
    "PolicyConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "load_config",
    "parse_config",
    "to_toml",
]
