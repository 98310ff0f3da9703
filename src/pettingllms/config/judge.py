"""Judge sections: which judge scores submissions, and how verdicts become rewards."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from pettingllms.config.section import Section, section_of
from pettingllms.errors import nearest
from pettingllms.registry import JUDGES

RULE = "rule"
"""Name of the environment's rule-based judge."""
Against = Literal["score", "reference", "group", "rival"]


class OneJudgeConfig(Section):
    """Options of every judge. Judges add their own."""

    kind: str = ""
    """`rule`, `llm`, `panel`, `verifier`, or a custom judge as `package.module:Class` or
    `file.py:Class`."""
    margin: float = Field(default=0.0, ge=0, le=1)
    """Scores that differ by at most this margin are a tie in a comparison."""

    def policies(self) -> list[str]:
        """Policies that the judge samples from."""
        return []

    def members(self) -> list[str]:
        """Judges that it aggregates."""
        return []

    @property
    def needs_model(self) -> bool:
        """Whether its verdicts come from a model, of this run or elsewhere."""
        return bool(self.policies())

    def start_problem(self) -> str:
        """Why it could not give verdicts now, as `key: what; advice`; empty if it can. `check`
        reports it, and training refuses to start."""
        return ""


class RuleConfig(OneJudgeConfig):
    """Options of the environment's rule."""

    part: str = ""
    """The single aspect that the rule scores, such as "fairness" in a negotiation; the
    environment's README lists them. Empty: all aspects."""


def _one_judge(data: Any) -> Any:
    return section_of(JUDGES, "kind", data)


OneJudge = Annotated[SerializeAsAny[OneJudgeConfig], BeforeValidator(_one_judge)]


class JudgeConfig(Section):
    """How judges turn submissions into rewards: after all episodes of a step, before credit
    assignment."""

    by: str = Field(default=RULE, min_length=1)
    """Name of the judge: one of `judges`, or `rule` for the environment's rule."""
    against: Against = "score"
    """What a submission is compared with. `score`: nothing; the judge gives a number. `reference`:
    submissions of a reference policy for the same task. `group`: the other submissions for the same
    task. `rival`: submissions of the other roles in the same environment step."""
    reference: str = ""
    """Policy that never learns and replaces all policies that learn, for `reference`."""
    num_references: int = Field(default=1, ge=1)
    """Episodes of the reference policy per task."""
    rounds: int = Field(default=0, ge=0)
    """Group: rounds of a Swiss tournament. 0: round-robin."""
    prior: float = Field(default=0.1, gt=0)
    """Group: L2 regularization of the Bradley-Terry strengths."""
    weight: float = 1.0
    """Weight of a verdict, from 0 to 1, relative to the environment's rewards."""
    held_out: str = ""
    """Name of a second judge whose verdicts are only measured, never used as rewards. It detects
    overoptimization of the first. Empty: none."""
    held_out_share: float = Field(default=1.0, gt=0, le=1)
    """Share of verdicts that the held-out judge also gives."""
    max_held_out_gap: float = Field(default=0.3, gt=0, le=1)
    """Difference between the two judges above which the run raises an alarm."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds that all verdicts of a step may take. Missing verdicts are failures."""
    judges: dict[str, OneJudge] = Field(default_factory=dict)
    """Judges by name."""

    def unused_keys(self) -> set[str]:
        """Keys of other values of `against`, and of `held_out`."""
        of_reference = set() if self.against == "reference" else {"num_references"}
        of_group = set() if self.against == "group" else {"rounds", "prior"}
        of_held_out = set() if self.held_out else {"held_out_share", "max_held_out_gap"}
        return of_reference | of_group | of_held_out

    def named(self) -> list[str]:
        """The judges in use, including members of panels."""
        found: list[str] = []
        waiting = [self.by, *([self.held_out] if self.held_out else [])]
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found.append(name)
                waiting += self.judges[name].members() if name in self.judges else []
        return found

    def policies(self) -> list[str]:
        """Policies that judges sample from, and the reference; they may have no role."""
        sampled = [
            p for name in self.named() if name in self.judges for p in self.judges[name].policies()
        ]
        return [*sampled, *([self.reference] if self.reference else [])]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if "by" not in self.model_fields_set and self.judges:
            raise ValueError("judges are defined, but `by` names none of them; set it")
        if (self.against == "reference") != bool(self.reference):
            raise ValueError('set reference if, and only if, against = "reference"')
        if self.by == self.held_out:
            raise ValueError(f"held_out is '{self.by}', like by; name another judge")
        return self


def part_problems(judge: JudgeConfig, env: Any) -> Iterator[str]:
    """Aspects that the environment's rule does not score."""
    for name, section in judge.judges.items():
        part = section.part if isinstance(section, RuleConfig) else ""
        if part and part not in env.rule_parts:
            known = nearest(part, env.rule_parts)
            yield f"judge.judges.{name}.part: '{env.id}' has no such part; {known}"


def judge_problems(
    judge: JudgeConfig, policies: Mapping[str, Any], rollout: Any, is_tree: bool
) -> Iterator[str]:
    """Why these judges cannot score this run."""
    known = [*judge.judges, RULE]
    for name in judge.named():
        if name not in known:
            yield f"judge: no judge is called '{name}'; {nearest(name, known)}"
    yield from _judge_model_problems(judge, policies)
    if judge.against == "group" and rollout.num_samples < 2:
        yield (
            'judge.against: "group" compares the answers to one task, and rollout.num_samples is '
            "1; raise it"
        )
    if is_tree and rollout.select == "best":
        yield 'rollout.select: "best" would be selected before the judge scores; set "sampled"'


def _judge_model_problems(judge: JudgeConfig, policies: Mapping[str, Any]) -> Iterator[str]:
    for name in judge.policies():
        if name not in policies:
            yield f"judge: no policy is called '{name}'; {nearest(name, policies)}"
        elif policies[name].kind in ("full", "lora"):
            yield (
                f"judge: '{name}' learns, so its verdicts would change during training; name a "
                "policy of the kind frozen or api"
            )
        elif policies[name].kind == "scripted" and name != judge.reference:
            yield f"judge: '{name}' is a scripted player, which cannot judge; set kind = \"rule\""
