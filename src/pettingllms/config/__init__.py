"""Configuration: TOML with dotted overrides, read by strict pydantic models."""

from pettingllms.config.load import load_config, parse_config, problems_in, to_toml
from pettingllms.config.overrides import apply_overrides
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
    "apply_overrides",
    "load_config",
    "parse_config",
    "problems_in",
    "to_toml",
]
