"""The whole configuration of a run, read from one TOML file."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.config.curriculum import CurriculumConfig, at_level
from pettingllms.config.engines import (
    MISMATCH_BOUNDS,
    ClusterConfig,
    DtypeOption,
    InferenceConfig,
    LearnerConfig,
    resolve_dtype,
)
from pettingllms.config.influence import InfluenceConfig
from pettingllms.config.judge import JudgeConfig
from pettingllms.config.league import LeagueConfig
from pettingllms.config.losses import LossConfig, loss_config, read_loss
from pettingllms.config.policies import TRAINED_KINDS, PolicyConfig
from pettingllms.config.schedule import learning
from pettingllms.config.section import AlgoConfig, EnvConfig, Section, section_of
from pettingllms.config.sft import DpoConfig, SftConfig
from pettingllms.config.training import (
    CriticConfig,
    EvalConfig,
    GuardConfig,
    LogConfig,
    TrainConfig,
)
from pettingllms.config.verifier import VerifierConfig
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS


class RewardConfig(Section):
    """How the three levels of reward become one number: a weighted sum."""

    team: float = 1.0
    """Weight of the team reward, which all roles share."""
    agent: float = 1.0
    """Weight of the agent reward, which one role receives."""
    process: float = 1.0
    """Weight of the process reward, which one reply receives."""
    overlong_buffer: int = Field(default=0, ge=0)
    """Tokens over which a penalty for long replies grows linearly from 0 to `overlong_penalty`,
    from `overlong_start` on: the soft overlong punishment of DAPO. 0: no penalty. Returns of a role
    contain the penalties of its replies; team returns contain those of all roles."""
    overlong_start: int = Field(default=0, ge=0)
    """Reply length in tokens at which the penalty begins. DAPO: rollout.max_reply_tokens minus
    `overlong_buffer`, so that a truncated reply has the full penalty."""
    overlong_penalty: float = Field(default=1.0, gt=0)
    """Penalty of replies that are longer than `overlong_start` and `overlong_buffer` together, on
    the scale of the weighted rewards."""
    influence: InfluenceConfig | None = None
    """Influence shaping of process rewards, before any algorithm reads them. Left out: none."""

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if not (self.team or self.agent or self.process):
            raise ValueError("all weights are 0, so there is no reward to learn from; set one")
        if self.overlong_start and not self.overlong_buffer:
            raise ValueError("overlong_start needs the length of the ramp; set overlong_buffer")
        return self

    def unused_keys(self) -> set[str]:
        """Keys of the length penalty."""
        return set() if self.overlong_buffer else {"overlong_start", "overlong_penalty"}

    def length_penalty(self, num_tokens: int) -> float:
        """The penalty of a reply, by its length."""
        if num_tokens <= self.overlong_start or not self.overlong_buffer:
            return 0.0
        excess = (num_tokens - self.overlong_start) / self.overlong_buffer
        return self.overlong_penalty * min(1.0, excess)


ROLLOUT_KEYS = (
    (("auto", "tree"), {"select", "continuation"}),
    (("auto", "replay"), {"num_replays", "replay"}),
    (("auto", "tree", "replay"), {"max_extra_tokens", "keep_continuations"}),
)
"""Rollout types, and the keys that only they read."""


class RolloutConfig(Section):
    """How episodes are sampled, and the limits that cut them."""

    type: Literal["auto", "linear", "tree", "replay"] = "auto"
    """Rollout type. `linear`: independent episodes. `tree`: sibling replies at every decision.
    `replay`: linear episodes, then replays with one reply changed. `auto`: the type that the
    algorithm needs."""
    num_tasks: int = Field(default=8, ge=1)
    """Tasks per batch."""
    max_resamples: int = Field(default=0, ge=0)
    """Rounds of further sampling per step (dynamic sampling of DAPO). Tasks whose advantages are
    all 0, for example because all rewards are equal, teach nothing; each round samples new tasks
    for those that are missing. Such tasks are left out of the loss, as with learner.skip_zero, but
    count in metrics, curricula and token budgets. 0: no further sampling."""
    num_samples: int = Field(default=4, ge=1)
    """Linear and replay: episodes per task. Tree: sibling replies per decision."""
    select: Literal["best", "sampled"] = "best"
    """Tree: which sibling continues as the main branch. `best` also shifts training states toward
    better ones; success is then measured on the siblings of the first decision."""
    continuation: Literal["auto", "none", "episode"] = "auto"
    """Tree: which siblings are continued to the end of the episode, so that their returns can be
    compared. `auto`: all siblings if the environment declares late_rewards, else those of decisions
    where only some siblings end the episode. `episode`: all siblings. `none`: no siblings;
    decisions where only some siblings end the episode are then excluded from training."""
    max_extra_tokens: int = Field(default=100_000, ge=1)
    """Token budget per episode for continuations or replays. If it does not cover all decisions, a
    random subset is trained on, independent of position; with select = "best" the whole episode is
    excluded."""
    keep_continuations: bool = False
    """Tree and replay: store the turns of continuations for the viewer. Their rewards are always
    stored."""
    num_replays: int = Field(default=3, ge=1)
    """Replay: alternative replies of the same role that each turn is compared with."""
    replay: Literal["auto", "resampled", "silent"] = "auto"
    """Replay: what is changed. `resampled`: one reply; all later turns of all roles are sampled
    again. `silent`: one role sends no messages; all others are sampled again from its first turn
    on. `auto`: what the algorithm needs."""
    rotate_roles: bool = False
    """Rotate policies through the roles from task to task during training, so that each policy
    fills every role equally often. For symmetric games with an opponent. A league always
    rotates."""
    max_steps: int = Field(default=200, ge=1)
    """Environment steps after which an episode is cut."""
    max_reply_tokens: int = Field(default=512, ge=1)
    """Maximum tokens per reply. The environment parses and scores a truncated reply like any
    other."""
    reply_tokens: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Maximum tokens per reply of single roles, such as `{ tester = 256 }`, at most
    max_reply_tokens, which is the limit of all other roles."""
    max_episode_tokens: int = Field(default=1_000_000, ge=1)
    """Tokens of an episode's main branch after which it is cut."""
    on_limit: Literal["reward", "exclude", "bootstrap"] = "reward"
    """How an episode counts that is cut by max_steps, max_episode_tokens or
    inference.max_model_len. `reward`: it ends with the environment's limit reward
    (env.limit_reward). `exclude`: it fails and is excluded from training, so a policy learns
    nothing against excessive length. `bootstrap`: the critic's value replaces the missing return
    (ppo, mappo)."""
    max_cut_share: float = Field(default=0.2, ge=0, le=1)
    """Share of cut episodes above which the run raises an alarm."""
    max_concurrent: int = Field(default=10_000, ge=1)
    """Episodes in progress per rollout worker."""
    num_workers: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    """Rollout workers: processes that sample episodes. 0: the driver process does. `auto`: 0 on one
    machine with up to four engine replicas, and for recordings; otherwise one per four replicas, at
    most half as many as cores. Any number gives the same episodes if replies do not depend on what
    else an engine decodes."""
    max_staleness: int = Field(default=0, ge=0)
    """Asynchronous training: the largest number of versions between a policy that learns and a turn
    that it learns from. Engines sample the next batches while learners learn. A group with an older
    turn is dropped, and its task sampled again. 0: synchronous training, in which sampling and
    learning alternate."""
    gateway_address: str = ""
    """Workflows: HOST:PORT at which the driver listens for the calls of all programs and forwards
    each to the rollout worker that records it. For programs that run in containers or on other
    machines; anyone who reaches HOST can send requests, and the API keys travel unencrypted. PORT 0
    takes a free one. Empty: each rollout worker listens on 127.0.0.1 for its own programs."""
    env_timeout: float = Field(default=10.0, gt=0)
    """Seconds that one environment call may take before its episode fails. Time in the sandbox and
    in the grader does not count; they have their own limits."""
    sampler_timeout: float = Field(default=600.0, gt=0)
    """Seconds that an inference engine may take per request before the turn fails. The clock starts
    when the request is sent: at most inference.max_num_seqs requests (`max_concurrent` for api
    policies) are in flight, and queued requests do not count. If an engine answers no request for
    this long, its queued requests fail too."""
    max_failure_share: float = Field(default=0.1, ge=0, le=1)
    """Share of failed turns, or of failed episodes, above which the run raises an alarm."""

    @field_validator("replay", mode="before")
    @classmethod
    def _no_frozen_replies(cls, value: Any) -> Any:
        if value == "kept":
            raise ValueError(
                "'kept' was removed: it froze later replies although they depend on the changed "
                "one; leave the key out, and later turns are sampled again"
            )
        return value

    @field_validator("gateway_address")
    @classmethod
    def _has_host_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        is_valid = host and ":" not in host and port.isascii() and port.isdigit()
        if value and (not is_valid or int(port) > 65_535 or host == "0.0.0.0"):  # noqa: S104
            raise ValueError(
                f"expected HOST:PORT with the IPv4 address or name by which programs reach this "
                f"machine, such as 10.0.0.1:8900, got '{value}'"
            )
        return value

    def unused_keys(self) -> set[str]:
        """Keys of other rollout types."""
        return set().union(*(keys for types, keys in ROLLOUT_KEYS if self.type not in types))

    @property
    def num_episodes(self) -> int:
        """Episodes per task: a tree holds all samples of a task in one episode."""
        return 1 if self.type == "tree" else self.num_samples

    def reply_limit(self, role: str) -> int:
        """Maximum tokens per reply of a role."""
        return self.reply_tokens.get(role, self.max_reply_tokens)

    @model_validator(mode="after")
    def _limits_of_roles(self) -> Self:
        for role, limit in self.reply_tokens.items():
            if limit > self.max_reply_tokens:
                raise ValueError(
                    f"reply_tokens.{role}: is {limit}, and no role may exceed max_reply_tokens "
                    f"({self.max_reply_tokens}); raise it to {limit}, and limit the other roles"
                )
        return self

    def linear(self, num_samples: int) -> Self:
        """The same limits for independent episodes, `num_samples` per task."""
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
    """A run: an environment, the policies that fill its roles, and how they are trained."""

    env: Annotated[SerializeAsAny[EnvConfig], BeforeValidator(_env_section)]
    """The environment and its options."""
    algo: Annotated[SerializeAsAny[AlgoConfig], BeforeValidator(_algo_section)]
    """The algorithm and its options."""
    policies: dict[str, PolicyConfig] = Field(min_length=1)
    """Policies by name."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role-to-policy map. Optional if there is only one policy."""
    reward: RewardConfig = RewardConfig()
    """Weights of the reward levels."""
    judge: JudgeConfig | None = None
    """Judges that score submissions, for tasks without a ground truth. Left out: no judge, or the
    environment's rule if its rewards come only from a judge."""
    rollout: RolloutConfig = RolloutConfig()
    """How episodes are sampled."""
    loss: Annotated[SerializeAsAny[LossConfig], BeforeValidator(read_loss)] = Field(
        default_factory=loss_config
    )
    """The loss, with its own options."""
    critic: CriticConfig | None = None
    """The critic of algorithms that need values. Left out: such an algorithm gets one with default
    options."""
    learner: LearnerConfig = LearnerConfig()
    """How learners update policies."""
    inference: InferenceConfig = InferenceConfig()
    """How inference engines sample from policies."""
    cluster: ClusterConfig = ClusterConfig()
    """The Ray cluster and its devices."""
    train: TrainConfig = TrainConfig()
    """Length of the run, checkpoints and schedule."""
    league: LeagueConfig | None = None
    """Opponents for self-play: snapshots, scripted anchors and exploiters. Left out: plain
    self-play."""
    co_players: CoPlayersConfig | None = None
    """Co-players of the policies that learn, on a schedule. Left out: the policies that [roles]
    names."""
    curriculum: CurriculumConfig | None = None
    """How tasks become harder during the run. Left out: one difficulty."""
    eval: EvalConfig = EvalConfig()
    """Evaluation on test tasks."""
    guard: GuardConfig | None = None
    """Guards against policy collapse. Left out: guards with default bounds."""
    sft: SftConfig | None = None
    """Supervised fine-tuning. Only `pettingllms sft` reads it."""
    dpo: DpoConfig | None = None
    """Direct preference optimization. Only `pettingllms dpo` reads it."""
    verifier: VerifierConfig | None = None
    """A model that predicts whether an answer is correct. Only `pettingllms verifier` reads it."""
    log: LogConfig = LogConfig()
    """Metric trackers."""
    seed: int = 0
    """Seed of all randomness in the run."""

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
        """Mean train-inference mismatch above which the run stops. Until the device is known,
        `auto` counts as bfloat16 unless cluster.device is "cpu"."""
        if self.inference.max_mismatch is not None:
            return self.inference.max_mismatch
        sides = (self.inference.dtype, self.learner.dtype)
        if self.learner.base_bits:
            return max(MISMATCH_BOUNDS.values())
        return max(MISMATCH_BOUNDS[resolve_dtype(one, self.cluster.device)] for one in sides)

    @property
    def updates_in_flight(self) -> bool:
        """Whether replies of full models continue with weights that arrive meanwhile."""
        wanted = self.inference.in_flight_updates is not False and self.rollout.max_staleness
        return bool(wanted and self.inference.capabilities.in_flight)

    def for_device(self, device: str) -> Self:
        """The same run with the dtypes that `auto` means on a device."""
        return self._with_dtypes(
            resolve_dtype(self.inference.dtype, device), resolve_dtype(self.learner.dtype, device)
        )

    def without_merging(self) -> Self:
        """The same run with adapters beside their bases, for samplers without learners."""
        inference = self.inference.model_copy(update={"merge_single_adapter": False})
        return self.model_copy(update={"inference": inference})

    def matches(self, recorded: Self) -> bool:
        """Whether a run that recorded its dtypes has this configuration; `auto` matches any."""
        inference, learner = self.inference.dtype, self.learner.dtype
        return recorded == self._with_dtypes(
            recorded.inference.dtype if inference == "auto" else inference,
            recorded.learner.dtype if learner == "auto" else learner,
        )

    def _with_dtypes(self, inference: DtypeOption, learner: DtypeOption) -> Self:
        parts = {
            "inference": self.inference.model_copy(update={"dtype": inference}),
            "learner": self.learner.model_copy(update={"dtype": learner}),
        }
        return self.model_copy(update=parts)

    def trained_policies(self) -> frozenset[str]:
        """Names of the policies that learn."""
        return frozenset(n for n, policy in self.policies.items() if policy.kind in TRAINED_KINDS)

    def played_policies(self) -> frozenset[str]:
        """Names of the policies that act: in a role, as an opponent or co-player, or as a judge."""
        beside = policies_without_roles(self.league, self.judge, self.co_players)
        return frozenset([*self.roles.values(), *beside])

    def learning(self, step: int) -> frozenset[str]:
        """Names of the policies that learn in a step."""
        return learning(self.policies, self.train, step)

    def env_at(self, level: int) -> EnvConfig:
        """The environment's section at a curriculum level, from 1."""
        curriculum = self.curriculum
        if curriculum is None:
            return self.env
        return at_level(self.env, curriculum.key, curriculum.levels[level - 1])
