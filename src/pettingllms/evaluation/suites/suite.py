"""Config of a suite: a list of benches, each an environment with its tasks and samples."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from pettingllms.config import RolloutConfig, Section, problems_in, read_toml
from pettingllms.config.section import EnvConfig
from pettingllms.errors import ConfigError, nearest
from pettingllms.registry import ENVIRONMENTS, absolute
from pettingllms.runs.folder import slug
from pettingllms.types.sampling import Truncation

BUILTIN_FOLDER = Path(__file__).parent
TEAM, SOLO = "team", "solo"
FORMS = (TEAM, SOLO)
TEXTS = frozenset({"protocol", "reference"})
"""Keys of a bench that do not affect its results."""


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
    num_tasks: Annotated[int, Field(ge=1)] | Literal["all"] = 32
    """Tasks of the test split; `all`: every one of them, once."""
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
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Sample only among the likeliest tokens whose probabilities reach this sum. top_p and top_k
    together replace those of the player. Left out: no such limit if top_k is set, else the
    player's."""
    top_k: int | None = Field(default=None, ge=0)
    """Sample only among this many of the likeliest tokens; 0: all. Left out: as with top_p."""
    max_reply_tokens: int = Field(default=512, ge=1)
    """Token limit per reply."""
    max_steps: int = Field(default=200, ge=1)
    """Environment steps after which an episode is truncated."""
    env_timeout: float = Field(default=60.0, gt=0)
    """Timeout per environment call in seconds."""
    needed_options: list[str] = Field(default_factory=list)
    """Environment options that must be set with --option, such as the address of a service."""
    metrics: list[str] = Field(default_factory=list)
    """Metrics of the environment that are reported too: the last value of each episode, averaged.
    Failed and truncated episodes count as 0."""
    protocol: str = ""
    """Where the samples, the sampling parameters and the limits come from, and what differs."""
    reference: str = ""
    """Name of the test set in `references.toml`, whose published numbers are shown too."""

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
    def truncation(self) -> Truncation | None:
        """What replaces the player's truncation, if anything."""
        if self.top_p is None and self.top_k is None:
            return None
        return Truncation(self.top_p or 1.0, self.top_k or 0)

    @property
    def last_task(self) -> int | None:
        """Index after the last task; None: up to the end of the split."""
        return self.first_task + self.num_tasks if isinstance(self.num_tasks, int) else None

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
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Keys of all benches that do not set them; `options` are joined key by key."""
    benches: list[Bench] = Field(min_length=1)
    """Benches in table order."""

    def problems(self) -> Iterator[str]:
        """Problems with bench names."""
        for name, count in Counter(slug(bench.title) for bench in self.benches).items():
            if count > 1 or not name:
                yield f"benches: '{name}' occurs {count} times; give each bench a unique name"

    @model_validator(mode="before")
    @classmethod
    def _fill_benches(cls, values: Any) -> Any:
        """Give each bench the defaults."""
        if not isinstance(values, dict) or not isinstance(values.get("benches"), list):
            return values
        defaults = values.get("defaults")
        if not isinstance(defaults, dict):
            return values
        return {**values, "benches": [_filled(bench, defaults) for bench in values["benches"]]}

    def changed(self, changes: "Changes") -> Self:
        """The suite as a user asks for it; ConfigError if no bench is left."""
        benches = changes.kept(self.benches)
        if not benches:
            titles = [bench.title for bench in self.benches]
            raise ConfigError("--bench", [f"no benchmark has such a name; {', '.join(titles)}"])
        return self.model_copy(update={"benches": [changes.applied(one) for one in benches]})


class Changes(Section):
    """What a user changes in the benches of a suite."""

    num_tasks: int | None = None
    num_samples: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    """Environment options of every bench."""
    names: Sequence[str] = ()
    """Names of the benches to keep, or parts of names; empty: all benches."""

    def kept(self, benches: Sequence[Bench]) -> list[Bench]:
        """The benches that were asked for. A whole name stands for itself only."""
        titles = {bench.title.lower() for bench in benches}
        wanted = [name.lower() for name in self.names]
        whole, parts = titles.intersection(wanted), [one for one in wanted if one not in titles]
        return [
            bench
            for bench in benches
            if not wanted
            or bench.title.lower() in whole
            or any(part in bench.title.lower() for part in parts)
        ]

    def applied(self, bench: Bench) -> Bench:
        """The bench with these numbers and options."""
        samples = bench.num_samples if self.num_samples is None else self.num_samples
        update = {
            "num_tasks": bench.num_tasks if self.num_tasks is None else self.num_tasks,
            "num_samples": samples,
            "max_samples": max(bench.max_samples, samples),
            "options": bench.options | self.options,
        }
        return bench.model_copy(update=update)


def _filled(bench: Any, defaults: Mapping[str, Any]) -> Any:
    if not isinstance(bench, dict):
        return bench
    filled = {**defaults, **bench}
    options = [one for one in (defaults.get("options"), bench.get("options")) if one is not None]
    if len(options) > 1 and all(isinstance(one, dict) for one in options):
        filled["options"] = options[0] | options[1]
    return filled


def hash_of(*parts: object) -> str:
    """A short hash of values whose text is the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


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
