"""What a suite is: a list of benches, each an environment and how much of it is played."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from pettingllms.config import RolloutConfig, Section, problems_in, read_toml
from pettingllms.config.section import EnvConfig
from pettingllms.errors import ConfigError, nearest
from pettingllms.registry import ENVIRONMENTS, absolute
from pettingllms.runs.folder import slug

SHIPPED = Path(__file__).parent
TEAM, SOLO = "team", "solo"
FORMS = (TEAM, SOLO)


class Bench(Section):
    """One environment, who plays what in it, and how often."""

    env: str
    """Name and version of the environment, as in `pettingllms envs`, or `file.py:Class`."""
    name: str = ""
    """As the table has it; empty: the environment's, without its version."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the environment, as under [env]. `solo = true` plays the solo form alone."""
    roles: list[str] = Field(default_factory=list)
    """Roles that the subject plays, all in one game; empty: every role."""
    role: str = ""
    """Whose success is reported; empty: the first that the subject plays."""
    others: str = "random"
    """Scripted player in the players that the subject does not have."""
    num_tasks: int = Field(default=32, ge=1)
    """Tasks of the test split."""
    first_task: int = Field(default=0, ge=0)
    """Where they begin."""
    num_samples: int = Field(default=4, ge=1)
    """Plays of each task: the k of avg@k, pass@k and majority@k."""
    against_solo: bool = False
    """Also play the solo form, and compare both at equal tokens."""
    solo_options: dict[str, Any] = Field(default_factory=dict)
    """Options that the solo form has besides, such as more rounds."""
    max_samples: int = Field(default=64, ge=1)
    """The cheaper form plays on until it has used as many tokens as the other, but each task at
    most so often."""
    temperature: float | None = Field(default=None, ge=0)
    """Of sampling, in place of the subject's own; 0 is greedy."""
    max_reply_tokens: int = Field(default=512, ge=1)
    """Tokens of one reply."""
    max_steps: int = Field(default=200, ge=1)
    """Steps of the environment before a play is cut."""
    env_timeout: float = Field(default=60.0, gt=0)
    """How long one call of the environment may take."""

    @model_validator(mode="after")
    def _one_form_of_solo(self) -> Self:
        if self.options.get("solo") and self.against_solo:
            raise ValueError("against_solo compares the team; leave solo out of options")
        if self.solo_options and not self.against_solo:
            raise ValueError("solo_options are for against_solo = true; set it, or use options")
        if self.max_samples < self.num_samples:
            raise ValueError(f"max_samples is below num_samples = {self.num_samples}; raise it")
        return self

    @property
    def title(self) -> str:
        """As the table has it."""
        plain = self.env.rpartition(":")[2].rpartition("-v")[0] or self.env
        return self.name or plain.replace("_", " ")

    @property
    def forms(self) -> tuple[str, ...]:
        """In which forms it is played."""
        if self.against_solo:
            return FORMS
        return (SOLO,) if self.options.get("solo") else (TEAM,)

    def section(self, form: str) -> EnvConfig:
        """The environment's section of a configuration, in one form."""
        extra = {"solo": True, **self.solo_options} if self.against_solo and form == SOLO else {}
        data = {"id": self.env, **self.options, **extra}
        found: EnvConfig = ENVIRONMENTS.load(self.env).Config.model_validate(data)
        return found

    def rollout(self, num_samples: int, max_concurrent: int, seconds: float) -> RolloutConfig:
        """How its plays are made."""
        return RolloutConfig(
            type="linear",
            num_samples=num_samples,
            max_steps=self.max_steps,
            max_reply_tokens=self.max_reply_tokens,
            max_concurrent=max_concurrent,
            env_timeout=self.env_timeout,
            sampler_timeout=seconds,
        )


class Suite(Section):
    """A list of benches."""

    title: str
    """Of table and figure."""
    benches: list[Bench] = Field(min_length=1)
    """In the order of the table."""

    def problems(self) -> Iterator[str]:
        """Names that are there twice."""
        for name, count in Counter(slug(bench.title) for bench in self.benches).items():
            if count > 1 or not name:
                yield f"benches: '{name}' is there {count} times; give each a name of its own"

    def with_numbers(self, num_tasks: int | None, num_samples: int | None) -> Self:
        """The same suite with as many tasks and plays as a user asks for."""
        benches = []
        for bench in self.benches:
            plays = bench.num_samples if num_samples is None else num_samples
            update = {
                "num_tasks": bench.num_tasks if num_tasks is None else num_tasks,
                "num_samples": plays,
                "max_samples": max(bench.max_samples, plays),
            }
            benches.append(bench.model_copy(update=update))
        return self.model_copy(update={"benches": benches})


def shipped() -> list[str]:
    """Names of the suites that ship."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """The suite of a name or of a file; one ConfigError with every problem found in it."""
    path = SHIPPED / f"{name}.toml" if name in shipped() else Path(name)
    if not path.is_file():
        raise ConfigError(
            f"--suite {name}", [f"no suite and no file is called so; {nearest(name, shipped())}"]
        )
    data = read_toml(path)
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        raise ConfigError(str(path), problems_in(error)) from None
    if problems := list(suite.problems()):
        raise ConfigError(str(path), problems)
    benches = [
        bench.model_copy(update={"env": absolute(bench.env, path.parent)})
        for bench in suite.benches
    ]
    return suite.model_copy(update={"benches": benches})
