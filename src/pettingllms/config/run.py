"""The whole configuration of a run: one small TOML file, checked before a machine is rented."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.config.critic import CriticConfig
from pettingllms.config.curriculum import CurriculumConfig, at_level
from pettingllms.config.engines import (
    MISMATCH_BOUNDS,
    ClusterConfig,
    InferenceConfig,
    LearnerConfig,
)
from pettingllms.config.guard import GuardConfig
from pettingllms.config.judge import JudgeConfig
from pettingllms.config.league import LeagueConfig
from pettingllms.config.losses import LossConfig, loss_config, read_loss
from pettingllms.config.policies import TRAINED_KINDS, PolicyConfig
from pettingllms.config.schedule import learning
from pettingllms.config.section import AlgoConfig, EnvConfig, Section, section_of
from pettingllms.config.sft import DpoConfig, SftConfig
from pettingllms.config.training import EvalConfig, LogConfig, TrainConfig
from pettingllms.config.verifier import VerifierConfig
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS


class RewardConfig(Section):
    """How the three levels of reward become one number: a weighted sum of what was paid."""

    team: float = 1.0
    """Weight of what all roles were paid together."""
    agent: float = 1.0
    """Weight of what the role itself was paid."""
    process: float = 1.0
    """Weight of what this very reply was paid."""

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if not (self.team or self.agent or self.process):
            raise ValueError("every weight is 0, so nothing would be learnt; set one")
        return self


ROLLOUT_KEYS = (
    (("auto", "tree"), {"select", "continuation"}),
    (("auto", "replay"), {"num_replays", "replay"}),
    (("auto", "tree", "replay"), {"max_extra_tokens", "keep_continuations"}),
)
"""Rollout types, and the keys that only they read."""


class RolloutConfig(Section):
    """How episodes are played, and where they are cut."""

    type: Literal["auto", "linear", "tree", "replay"] = "auto"
    """`linear`: whole episodes side by side. `tree`: siblings at every decision. `replay`: linear,
    and then played again with one thing changed. `auto`: what the algorithm needs."""
    num_tasks: int = Field(default=8, ge=1)
    """Tasks in a batch."""
    num_samples: int = Field(default=4, ge=1)
    """Linear and replay: episodes of one task. Tree: sibling replies at one decision."""
    select: Literal["best", "sampled"] = "best"
    """Tree: which sibling's branch continues. `best` also shifts the states that are trained on
    towards better ones; success is then measured on the first decision's siblings."""
    continuation: Literal["auto", "none", "episode"] = "auto"
    """Tree: which siblings are played to the end of the episode, to compare their returns. `auto`:
    all siblings if the environment declares late_rewards, else those of decisions whose siblings
    differ in whether they end the episode. `episode`: all siblings. `none`: no siblings; decisions
    whose siblings differ in that are then excluded from training."""
    max_extra_tokens: int = Field(default=100_000, ge=1)
    """Tokens that an episode's continuations or replays may use. If they do not suffice for all
    decisions, chance picks those that are trained on, whether early or late; with select = "best"
    the whole episode is excluded."""
    keep_continuations: bool = False
    """Tree and replay: keep the turns of continuations for the viewer. Their rewards are always
    kept."""
    num_replays: int = Field(default=3, ge=1)
    """Replay: other replies of its role that a turn is compared with."""
    replay: Literal["auto", "resampled", "silent"] = "auto"
    """Replay: what is changed. `resampled`: one reply; every later turn, of all roles, is sampled
    again. `silent`: one role says nothing, and all others are sampled again from its first turn on.
    `auto`: what the algorithm needs."""
    rotate_roles: bool = False
    """Policies move on by one player from task to task while training, so that each is in every
    player equally often: for symmetric games with an opponent. A league does so by itself."""
    max_steps: int = Field(default=200, ge=1)
    """Steps of the environment before an episode is cut."""
    max_reply_tokens: int = Field(default=512, ge=1)
    """Tokens of one reply. The environment reads and scores a reply that reaches them as it is."""
    max_episode_tokens: int = Field(default=1_000_000, ge=1)
    """Tokens of an episode's trunk before it is cut."""
    on_limit: Literal["reward", "exclude", "bootstrap"] = "reward"
    """What an episode counts for that is cut by max_steps, max_episode_tokens or
    inference.max_model_len. `reward`: it ends with the environment's limit reward
    (env.limit_reward). `exclude`: it fails, and is not trained on: a policy then learns nothing
    against runaway length. `bootstrap`: the critic's value stands for the rest (ppo, mappo)."""
    max_cut_share: float = Field(default=0.2, ge=0, le=1)
    """Share of cut episodes above which the alarm is raised."""
    max_concurrent: int = Field(default=10_000, ge=1)
    """Episodes that one worker holds at once."""
    env_timeout: float = Field(default=10.0, gt=0)
    """How long one call of the environment may take before its episode fails. Time in the sandbox
    and in the grader, which have limits of their own, does not count."""
    sampler_timeout: float = Field(default=600.0, gt=0)
    """How long an engine may take over one request before its turn fails. The clock runs from when
    the request is sent: at most inference.max_num_seqs replies (`max_concurrent` of an api policy)
    are in flight, and others wait off the clock. If an engine answers nothing at all for so long,
    the requests that wait for it fail too."""
    max_failure_share: float = Field(default=0.1, ge=0, le=1)
    """Share of failed turns, or of failed episodes, above which the alarm is raised."""

    @field_validator("replay", mode="before")
    @classmethod
    def _no_frozen_replies(cls, value: Any) -> Any:
        if value == "kept":
            raise ValueError(
                "'kept' froze later replies, although they answer the reply that was changed; "
                "leave the key out, and later turns are sampled again"
            )
        return value

    def unused_keys(self) -> set[str]:
        """Keys of other rollout types."""
        return set().union(*(keys for types, keys in ROLLOUT_KEYS if self.type not in types))

    @property
    def num_episodes(self) -> int:
        """Episodes of one task: a tree has its samples within one."""
        return 1 if self.type == "tree" else self.num_samples

    def linear(self, num_samples: int) -> Self:
        """The same for whole episodes side by side, so many of each task."""
        return self.model_copy(update={"type": "linear", "num_samples": num_samples})


COMMAND_SECTIONS = ("sft", "dpo", "verifier")
"""Sections that only the commands of the same names read."""


def policies_without_roles(
    league: LeagueConfig | None, judge: JudgeConfig | None, co_players: CoPlayersConfig | None
) -> list[str]:
    """Policies that a run needs although `[roles]` may not name them."""
    return [
        *(league.exploiters if league else ()),
        *(judge.policies() if judge else ()),
        *(co_players.policies() if co_players else ()),
    ]


def _env_section(data: Any) -> Any:
    return section_of(ENVIRONMENTS, "id", data)


def _algo_section(data: Any) -> Any:
    return section_of(ALGORITHMS, "type", data)


class RunConfig(Section):
    """A run: an environment, who plays its roles, and how they learn."""

    env: Annotated[SerializeAsAny[EnvConfig], BeforeValidator(_env_section)]
    """The environment, with its own options."""
    algo: Annotated[SerializeAsAny[AlgoConfig], BeforeValidator(_algo_section)]
    """The algorithm, with its own options."""
    policies: dict[str, PolicyConfig] = Field(min_length=1)
    """Policies by name."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Which policy plays which role. May be left out when there is one policy."""
    reward: RewardConfig = RewardConfig()
    """How the levels of reward are mixed."""
    judge: JudgeConfig | None = None
    """Who says how good answers are, where nobody knows the truth."""
    rollout: RolloutConfig = RolloutConfig()
    """How episodes are played."""
    loss: Annotated[SerializeAsAny[LossConfig], BeforeValidator(read_loss)] = Field(
        default_factory=loss_config
    )
    """The loss, with its own options."""
    critic: CriticConfig | None = None
    """Who learns values, for algorithms that need them; left out, such an algorithm gets one."""
    learner: LearnerConfig = LearnerConfig()
    """How policies learn."""
    inference: InferenceConfig = InferenceConfig()
    """How policies are sampled from."""
    cluster: ClusterConfig = ClusterConfig()
    """Where all of it runs."""
    train: TrainConfig = TrainConfig()
    """How long a run goes on."""
    league: LeagueConfig | None = None
    """Whom a policy meets that plays itself."""
    co_players: CoPlayersConfig | None = None
    """Who sits with those that learn, and how that changes."""
    curriculum: CurriculumConfig | None = None
    """How tasks get harder."""
    eval: EvalConfig = EvalConfig()
    """How good the team is, without learning."""
    guard: GuardConfig | None = None
    """When a policy has collapsed, and what is done then."""
    sft: SftConfig | None = None
    """Supervised training, before or instead of all that."""
    dpo: DpoConfig | None = None
    """Learning from pairs of replies, after or instead of it."""
    verifier: VerifierConfig | None = None
    """A model that says how likely an answer is right."""
    log: LogConfig = LogConfig()
    """Where metrics go."""
    seed: int = 0
    """Everything random in the run follows from this number."""

    def used_options(self) -> dict[str, Any]:
        """What `pettingllms show-config` prints: sections and options that are in use."""
        used = super().used_options()
        used["policies"] = {name: policy.used_options() for name, policy in self.policies.items()}
        return {"seed": self.seed, **{name: part for name, part in used.items() if part != {}}}

    @property
    def active_guard(self) -> GuardConfig:
        """The collapse guards in force: `[guard]`, or its defaults."""
        return self.guard or GuardConfig()

    def for_training(self) -> Self:
        """The same run without the sections that only other commands read."""
        return self.model_copy(update=dict.fromkeys(COMMAND_SECTIONS))

    def mismatch_bound(self) -> float:
        """Mean difference of log-probs between sampler and learner past which the run stops."""
        if self.inference.max_mismatch is not None:
            return self.inference.max_mismatch
        return max(MISMATCH_BOUNDS[self.inference.dtype], MISMATCH_BOUNDS[self.learner.dtype])

    def trained_policies(self) -> frozenset[str]:
        """Names of the policies that learn."""
        return frozenset(n for n, policy in self.policies.items() if policy.kind in TRAINED_KINDS)

    def played_policies(self) -> frozenset[str]:
        """Names of the policies that speak at all: in a role, or beside those that do."""
        beside = policies_without_roles(self.league, self.judge, self.co_players)
        return frozenset([*self.roles.values(), *beside])

    def learning(self, step: int) -> frozenset[str]:
        """Names of the policies that learn in this very step."""
        return learning(self.policies, self.train, step)

    def env_at(self, level: int) -> EnvConfig:
        """The environment's section at a level of the curriculum, from 1; without one, as it is."""
        curriculum = self.curriculum
        if curriculum is None:
            return self.env
        return at_level(self.env, curriculum.key, curriculum.levels[level - 1])
