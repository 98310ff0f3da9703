"""Samplers and renderers of all policies, by name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.config.policies import ApiPolicy, FrozenPolicy, ScriptedPolicy
from pettingllms.envs import Environment
from pettingllms.inference.choice_logprobs import Choice
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.inference.recording import RecordedSampler, Recording, model_hash
from pettingllms.judges import JudgeModel
from pettingllms.league import SCRIPT
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.types import Failed, PromptTooLong, Renderer, Sampler
from pettingllms.types.sampling import WHOLE, Truncation

Read = Callable[[str, Sequence[Choice]], Awaitable[list[list[float]]]]
"""`Team.reply_logprobs`."""


def truncation_of(policy: PolicyConfig) -> Truncation:
    """Truncation by the policy's own options, which policies that learn do not have."""
    if isinstance(policy, FrozenPolicy | ApiPolicy):
        return Truncation(policy.top_p, policy.top_k)
    return WHOLE


class PolicySamplers:
    """Creates players and judge models. Scripted players need only their environment."""

    def __init__(self, config: RunConfig, weight_hashes: Mapping[str, str]) -> None:
        self.renderers: dict[str, Renderer] = {}
        self._samplers: dict[str, Sampler] = {}
        self._config = config
        self._weight_hashes = weight_hashes
        recording = config.inference.recording
        self._recording = Recording(Path(recording)) if recording else None

    def add_model(
        self, policies: Sequence[str], sampler: Sampler, renderer: Renderer, model: Path
    ) -> None:
        """Add policies that engines of this run serve."""
        if self._recording is not None:
            weight_hash = model_hash(model)
            sampler = RecordedSampler(sampler, self._recording, self._weight_hashes, weight_hash)
        for policy in policies:
            self._samplers[policy], self.renderers[policy] = sampler, renderer

    def add_servers(self) -> None:
        """Add policies that external servers provide."""
        for name in sorted(self._config.played_policies()):
            api = self._config.policies[name]
            if isinstance(api, ApiPolicy):
                self._samplers[name] = HttpSampler(api)
                self.renderers[name] = JsonRenderer(api.supports_images)

    def player(
        self,
        env: Environment[Any, Any],
        name: str,
        source: str,
        temperature: float | None,
        trained: bool,
        centralized: bool,
        truncation: Truncation | None = None,
    ) -> Player:
        """The player of a policy, of a snapshot of the policy `source`, or of a scripted player."""
        policy = self._config.policies.get(source)
        if isinstance(policy, ScriptedPolicy) or policy is None:
            player = name.removeprefix(SCRIPT) if policy is None else policy.player
            return scripted_player(env, player, name)
        return Player(
            name,
            self._samplers[source],
            self.renderers[source],
            trained=trained,
            rests=not trained and source in self._config.trained_policies(),
            in_bytes=isinstance(policy, ApiPolicy),
            temperature=policy.temperature if temperature is None else temperature,
            truncation=truncation or truncation_of(policy),
            centralized=centralized,
        )

    def usual_players(self, env: Environment[Any, Any]) -> dict[str, Player]:
        """The players of [roles], by role."""
        trained = self._config.trained_policies()
        return {
            role: self.player(env, name, name, None, name in trained, False)
            for role, name in self._config.roles.items()
        }

    def judge(self, name: str, reply_logprobs: Read) -> JudgeModel:
        """A policy of this run as the model of a judge."""
        policy = self._config.policies[name]
        renderer: Any = self.renderers[name]  # of a tokenizer, where `read` is used
        assert not isinstance(policy, ScriptedPolicy)  # noqa: S101 - see judge_problems

        limit = self._config.inference.max_model_len

        async def read(messages: Sequence[Any], replies: Sequence[str]) -> list[float] | Failed:
            longest = max(len(renderer.encode(reply)) for reply in replies)
            if (num_tokens := len(renderer.render(messages)) + longest) >= limit:
                reason = f"{num_tokens} tokens to judge (inference.max_model_len = {limit})"
                return PromptTooLong(reason, "limit")
            (found,) = await reply_logprobs(name, [(messages, replies)])
            return found

        return JudgeModel(
            policy=name,
            sampler=self._samplers[name],
            renderer=renderer,
            temperature=policy.temperature,
            truncation=truncation_of(policy),
            read=None if isinstance(policy, ApiPolicy) else read,
            special=getattr(renderer, "special", ()),
        )

    async def close(self) -> None:
        """Close connections and recordings."""
        for sampler in self._samplers.values():
            if isinstance(sampler, HttpSampler):
                await sampler.close()
        if self._recording is not None:
            self._recording.close()
