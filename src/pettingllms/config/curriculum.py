"""The curriculum section: values of one environment option, easiest first."""

from typing import Self

from pydantic import Field, model_validator

from pettingllms.config.section import EnvConfig, Section

Level = bool | int | float | str


class CurriculumConfig(Section):
    """Tasks that become harder as roles succeed. Success sets the level and is never a reward."""

    key: str = ""
    """Option of [env] that the curriculum changes, such as min_distance."""
    levels: list[Level] = Field(default_factory=list)
    """Values of the option, easiest first. Training starts with the first; evaluation uses the
    last."""
    raise_at: float = Field(default=0.8, gt=0, le=1)
    """Success rate over the window at which the next level starts. Trees count ordinary samples of
    the policy, never the best of several siblings."""
    lower_at: float | None = Field(default=None, gt=0, lt=1)
    """Success rate below which the previous level returns. Left out: never."""
    window: int = Field(default=4, ge=1)
    """Training steps whose episodes count. It restarts at every level."""
    role: str | None = None
    """Role whose success counts. Left out: the mean over roles, which is uninformative in zero-sum
    games."""

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if bool(self.key) != bool(self.levels):
            raise ValueError("key and levels go together; set both")
        if self.lower_at is not None and self.lower_at >= self.raise_at:
            raise ValueError(
                f"lower_at is {self.lower_at:g}, not below raise_at = {self.raise_at:g}: the level "
                "would oscillate with every window"
            )
        return self


def at_level(env: EnvConfig, key: str, value: Level) -> EnvConfig:
    """The environment's section with one option set and validated."""
    return type(env).model_validate({**env.model_dump(), key: value})
