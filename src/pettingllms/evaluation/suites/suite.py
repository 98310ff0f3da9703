"""Config of a suite: a list of benches, each an environment with its tasks and samples."""

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

BUILTIN_FOLDER = Path(__file__).parent
TEAM, SOLO = "team", "solo"
FORMS = (TEAM, SOLO)


class Bench(Section):
    """One environment, the roles of the evaluated player, and the number of tasks and samples."""

    env: str
    """Name and version of the environment, as in `pettingllms list envs`, or `file.py:Class`."""
    name: str = ""
    """Name in the table; empty: the environment's id without version."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Environment options, as under [env]. `solo = true` runs only the solo form."""
    roles: list[str] = Field(default_factory=list)
    """Roles that the evaluated player plays in each episode; empty: all roles."""
    role: str = ""
    """Role whose success is reported; empty: the first role of the evaluated player."""
    others: str = "random"
    """Scripted player for the other roles."""
    num_tasks: int = Field(default=32, ge=1)
    """Tasks of the test split."""
    first_task: int = Field(default=0, ge=0)
    """Index of the first task."""
    num_samples: int = Field(default=4, ge=1)
    """Episodes per task: the k of avg@k, pass@k and majority@k."""
    against_solo: bool = False
    """Also run the solo form, and compare both at equal tokens."""
    solo_options: dict[str, Any] = Field(default_factory=dict)
    """Additional options of the solo form, such as more rounds."""
    max_samples: int = Field(default=64, ge=1)
    """Upper bound on episodes per task when the cheaper form gets more episodes to match the token
    budget of the other."""
    temperature: float | None = Field(default=None, ge=0)
    """Overrides the player's sampling temperature; 0 is greedy."""
    max_reply_tokens: int = Field(default=512, ge=1)
    """Token limit per reply."""
    max_steps: int = Field(default=200, ge=1)
    """Environment steps after which an episode is truncated."""
    env_timeout: float = Field(default=60.0, gt=0)
    """Timeout per environment call in seconds."""

    @model_validator(mode="after")
    def _check_solo_and_samples(self) -> Self:
        if self.options.get("solo") and self.against_solo:
            raise ValueError(
                "against_solo = true already runs the solo form; remove solo from options"
            )
        if self.solo_options and not self.against_solo:
            raise ValueError("solo_options need against_solo = true; set it, or use options")
        if self.max_samples < self.num_samples:
            raise ValueError(f"max_samples must be at least num_samples = {self.num_samples}")
        return self

    @property
    def title(self) -> str:
        """Name in the table."""
        plain = self.env.rpartition(":")[2].rpartition("-v")[0] or self.env
        return self.name or plain.replace("_", " ")

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms to run: team, solo or both."""
        if self.against_solo:
            return FORMS
        return (SOLO,) if self.options.get("solo") else (TEAM,)

    def section(self, form: str) -> EnvConfig:
        """The environment config of one form."""
        extra = {"solo": True, **self.solo_options} if self.against_solo and form == SOLO else {}
        data = {"id": self.env, **self.options, **extra}
        found: EnvConfig = ENVIRONMENTS.load(self.env).Config.model_validate(data)
        return found

    def rollout(self, num_samples: int, max_concurrent: int, seconds: float) -> RolloutConfig:
        """The rollout config of the bench."""
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
    """Title of the table and figure."""
    benches: list[Bench] = Field(min_length=1)
    """Benches in table order."""

    def problems(self) -> Iterator[str]:
        """Problems with bench names."""
        for name, count in Counter(slug(bench.title) for bench in self.benches).items():
            if count > 1 or not name:
                yield f"benches: '{name}' occurs {count} times; give each bench a unique name"

    def with_numbers(self, num_tasks: int | None, num_samples: int | None) -> Self:
        """The suite with another number of tasks or samples."""
        benches = []
        for bench in self.benches:
            samples = bench.num_samples if num_samples is None else num_samples
            update = {
                "num_tasks": bench.num_tasks if num_tasks is None else num_tasks,
                "num_samples": samples,
                "max_samples": max(bench.max_samples, samples),
            }
            benches.append(bench.model_copy(update=update))
        return self.model_copy(update={"benches": benches})


def builtin_suites() -> list[str]:
    """Names of the built-in suites."""
    return sorted(path.stem for path in BUILTIN_FOLDER.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """Load a built-in suite or a file; raise one ConfigError with all problems."""
    path = BUILTIN_FOLDER / f"{name}.toml" if name in builtin_suites() else Path(name)
    if not path.is_file():
        raise ConfigError(
            f"--suite {name}", [f"no such suite or file; {nearest(name, builtin_suites())}"]
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
