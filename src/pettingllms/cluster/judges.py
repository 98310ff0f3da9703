"""The judges of a run: what a batch laid before them, and a reference's plays to hold it to."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.envs import Environment
from pettingllms.judges import (
    FIRST_PLAY,
    JudgeContext,
    JudgeModel,
    Verdicts,
    judge_all,
    make_judges,
    reference_assignments,
)
from pettingllms.league import Assignment
from pettingllms.types import Episode, Reward, Submission, Task

Play = Callable[..., Awaitable[list[Episode]]]
"""`Team.play`."""


@dataclass(frozen=True, slots=True)
class Played:
    """What episodes were played from."""

    tasks: Sequence[Task]
    seed: int
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    """Who played a task, by its id, where that is not whom [roles] names."""
    env: Environment[Any, Any] | None = None
    """None: what is trained on."""


class Judges:
    """Judges that are made once and keep what they have said."""

    def __init__(
        self,
        config: RunConfig,
        env: Callable[[], Environment[Any, Any]],
        judge_model: Callable[[str], JudgeModel],
        play: Play,
    ) -> None:
        """`env` says what is trained on now: a curriculum changes it, and its rule with it."""
        self._config = config
        self._env = env
        self._judged = env()
        self._play = play
        self._judges = make_judges(
            config.judge, JudgeContext(self._rule, judge_model, seed=config.seed)
        )

    async def judge(self, episodes: Sequence[Episode], played: Played, by_score: bool) -> Verdicts:
        """Pay for what was laid before the judge."""
        self._judged = played.env or self._env()
        config = self._config.judge
        if by_score and config.against == "group":
            config = config.model_copy(update={"against": "score"})
        references: list[Episode] = []
        if config.against == "reference":
            references = await self._references(played)
        share = self._config.rollout.max_failure_share
        return await judge_all(episodes, references, config, self._judges, share)

    async def close(self) -> None:
        """Let the judges go."""
        for judge in self._judges.values():
            await judge.close()

    def _rule(self, submission: Submission, part: str) -> Reward:
        return self._judged.rule(submission, part)

    async def _references(self, played: Played) -> list[Episode]:
        """The same tasks, with the reference in the place of all that learn."""
        assignments = reference_assignments(self._config, played.tasks, played.assignments)
        rollout = self._config.rollout.linear(self._config.judge.num_references)
        return await self._play(
            played.tasks,
            played.seed,
            rollout,
            env=played.env,
            assignments=assignments,
            first=FIRST_PLAY,
        )
