"""Guards against collapse: what a step measured, held to bounds, for several steps in a row.

A collapse is quiet. Siblings that are all alike are paid alike, so advantages are 0, losses are 0,
nothing fails, and in self-play the win rate stays at a half. One bad step is no sign; each bound is
judged on its own, over several in a row. What the guards remember is part of the checkpoint, so a
run that was killed is judged as if it had not been. A run that they paused is judged anew: it would
pause again at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.runs.checkpoint import checkpoint_name
from pettingllms.runs.diversity import reply_shares
from pettingllms.runs.metrics import Metrics
from pettingllms.types import Episode

ANCHOR, BEST = "anchor_", "best/"
SHOWN = 60
"""Characters of a reply in a message."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One bound that one policy was past in this step."""

    policy: str
    metric: str
    saw: str
    why: str
    remedy: str
    key: str
    """Of [guard]: the bound, which is set otherwise if this is how it should be."""


class Guards:
    """The guards of a run. `state` is what they remembered in a checkpoint."""

    def __init__(self, config: RunConfig, state: Mapping[str, float]) -> None:
        self._run = config
        self._config = config.guard
        self._counts = {key: n for key, n in state.items() if not key.startswith(BEST)}
        self._best = {key.removeprefix(BEST): n for key, n in state.items() if key.startswith(BEST)}

    @property
    def is_well(self) -> bool:
        """Whether somebody looks, and no policy is past any bound."""
        return self._config.action != "off" and not any(self._counts.values())

    def state(self) -> dict[str, float]:
        """What is remembered: steps in a row past each bound, and the best against each anchor."""
        return {**self._counts, **{BEST + key: value for key, value in self._best.items()}}

    def see(self, metrics: Metrics) -> list[Sign]:
        """Take in one step; the signs that have now gone on for too long, which are forgotten."""
        if self._config.action == "off":
            return []
        found = []
        for policy, numbers in metrics["policies"].items():
            signs = {sign.metric: sign for sign in self._signs(policy, numbers, metrics)}
            for metric in self._measured(numbers):
                key = f"{policy}/{metric}"
                self._counts[key] = self._counts.get(key, 0) + 1 if metric in signs else 0
                if self._counts[key] >= self._patience(metric):
                    found.append(signs[metric])
                    self._counts[key] = 0
                    self._best.pop(key, None)
        return found

    def describe(self, signs: Sequence[Sign], episodes: Sequence[Episode]) -> str:
        """What was seen of each policy, why that is suspicious, and what helps."""
        lines = []
        for sign in signs:
            often = "evaluations" if sign.metric.startswith(ANCHOR) else "steps"
            lines += [
                f"  '{sign.policy}', {self._patience(sign.metric)} {often} in a row: {sign.saw}.",
                f"    Most often it says {_commonest(episodes, sign.policy)}.",
                f"    That is suspicious: {sign.why}.",
                f"    What helps: {sign.remedy}. If it should be so: {sign.key} under [guard].",
            ]
        return "\n".join(lines)

    def _measured(self, numbers: Mapping[str, float]) -> list[str]:
        """What of a step can be judged; the count of what was not measured stays as it is."""
        known = {"distinct_replies", "sampler_entropy", "repetition"}
        known |= {ANCHOR + name for name in self._config.anchors}
        if numbers.get("distinct_prompts", 0) < self._config.min_prompts:
            known.discard("distinct_replies")
        return [metric for metric in numbers if metric in known]

    def _patience(self, metric: str) -> int:
        guard = self._config
        return guard.anchor_patience if metric.startswith(ANCHOR) else guard.patience

    def _signs(self, policy: str, numbers: Mapping[str, float], metrics: Metrics) -> Iterator[Sign]:
        guard = self._config
        replies, entropy = numbers.get("distinct_replies"), numbers.get("sampler_entropy")
        wins = self._wins(policy, metrics)
        if replies is not None and replies < guard.min_replies and not wins:
            yield Sign(
                policy,
                "distinct_replies",
                f"{replies:.3f} different replies over {numbers['distinct_prompts']:.0f} different "
                f"prompts (guard.min_replies = {guard.min_replies:g})",
                "it says the same whatever it is shown, so its siblings are paid alike and nothing "
                "is left to learn from",
                f"lower policies.{policy}.lr, raise loss.entropy_coef, or look whether this reply "
                "is "
                "paid more than it should be",
                "min_replies = 1",
            )
        if entropy is not None and entropy < guard.min_entropy and not wins:
            yield Sign(
                policy,
                "sampler_entropy",
                f"an entropy of {entropy:.2g} a token (guard.min_entropy = {guard.min_entropy:g})",
                "it tries nothing else any more, so it cannot find anything better",
                f"lower policies.{policy}.lr, or raise loss.entropy_coef",
                "min_entropy = 0",
            )
        if numbers.get("repetition", 0) > guard.max_repetition:
            yield Sign(
                policy,
                "repetition",
                f"{numbers['repetition']:.0%} of what its replies say stood in them before "
                f"(guard.max_repetition = {guard.max_repetition:g})",
                "its replies go round in circles until they are cut",
                f"lower policies.{policy}.lr, raise loss.kl_coef, or pay less for long replies",
                "max_repetition = 1",
            )
        yield from self._drops(policy, numbers)

    def _drops(self, policy: str, numbers: Mapping[str, float]) -> Iterator[Sign]:
        for name in self._config.anchors:
            metric = ANCHOR + name
            if metric not in numbers:
                continue
            now, key = numbers[metric], f"{policy}/{metric}"
            best = self._best[key] = max(now, self._best.get(key, now))
            if now < best - self._config.max_anchor_drop:
                yield Sign(
                    policy,
                    metric,
                    f"success against '{name}' of {now:.0%}, after {best:.0%} "
                    f"(guard.max_anchor_drop = {self._config.max_anchor_drop:g})",
                    "it gets worse against a player that never changes, whatever it wins against "
                    "itself",
                    f"lower policies.{policy}.lr, or set learner.decay_steps or decay_tokens",
                    "max_anchor_drop = 1",
                )

    def _wins(self, policy: str, metrics: Metrics) -> bool:
        """Whether all roles of the policy reach their aim so often that one reply may be right."""
        roles = [role for role, name in self._run.roles.items() if name == policy]
        success = [metrics["roles"][role].get("success", 0.0) for role in roles]
        return bool(success) and min(success) >= self._config.enough_success


def what_to_do(run: str, good: int) -> str:
    """The ways on from a pause."""
    back = (
        f"  back to before: `pettingllms resume {run} --step {good}`; checkpoints/"
        f"{checkpoint_name(good)} is the last good one, and is kept"
        if good
        else "  there is no good checkpoint to go back to; begin anew with another setting"
    )
    return (
        f"The run is saved. Look at its last episodes in {run}/episodes, change {run}/config.toml, "
        f"then\n{back}\n  on from here: `pettingllms resume {run}`"
    )


def _commonest(episodes: Sequence[Episode], policy: str) -> str:
    turns = [turn for episode in episodes for turn in episode.turns if turn.policy == policy]
    shares, _ = reply_shares([turn for turn in turns if turn.policy_version is not None])
    if not shares:
        return "nothing in this step"
    text = max(shares, key=lambda text: shares[text])
    shown = repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
    return f"{shown} ({shares[text]:.0%})"
