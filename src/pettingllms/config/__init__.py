"""Configuration: TOML with dotted overrides, read by strict pydantic models."""

from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.config.curriculum import CurriculumConfig
from pettingllms.config.engines import ClusterConfig, InferenceConfig, LearnerConfig
from pettingllms.config.extends import read_config
from pettingllms.config.influence import InfluenceConfig
from pettingllms.config.judge import JudgeConfig, OneJudgeConfig
from pettingllms.config.league import LeagueConfig
from pettingllms.config.load import (
    apply_overrides,
    load_config,
    parse_config,
    problems_in,
    to_toml,
)
from pettingllms.config.losses import LossConfig, loss_config
from pettingllms.config.policies import PolicyConfig
from pettingllms.config.run import RewardConfig, RolloutConfig, RunConfig
from pettingllms.config.section import AlgoConfig, EnvConfig, Section
from pettingllms.config.toml_files import read_toml
from pettingllms.config.training import (
    CriticConfig,
    EvalConfig,
    GuardConfig,
    LogConfig,
    TrainConfig,
)

__all__ = [
    "AlgoConfig",
    "ClusterConfig",
    "CoPlayersConfig",
    "CriticConfig",
    "CurriculumConfig",
    "EnvConfig",
    "EvalConfig",
    "GuardConfig",
    "InferenceConfig",
    "InfluenceConfig",
    "JudgeConfig",
    "LeagueConfig",
    "LearnerConfig",
    "LogConfig",
    "LossConfig",
    "OneJudgeConfig",
    "PolicyConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "TrainConfig",
    "apply_overrides",
    "load_config",
    "loss_config",
    "parse_config",
    "problems_in",
    "read_config",
    "read_toml",
    "to_toml",
]
