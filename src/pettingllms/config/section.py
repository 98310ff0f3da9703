"""The base class of configuration sections: strict, frozen, documented by strings under fields."""

from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pettingllms.errors import UnknownNameError, nearest
from pettingllms.registry import Registry


class Section(BaseModel):
    """A table of the TOML file. Unknown keys are errors; the text under a field documents it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    def unused_keys(self) -> set[str]:
        """Keys that have no effect, given the other keys of the section."""
        return set()

    def used_options(self) -> dict[str, Any]:
        """The section as plain data, without options that are off or have no effect by default.

        An option that differs from its default is always included.
        """
        data = self.model_dump(mode="json", exclude_none=True)
        unused, used = self.unused_keys(), {}
        for name, value in data.items():
            given, field = getattr(self, name), type(self).model_fields[name]
            is_default = given == field.get_default(call_default_factory=True)
            if is_default and (not given or name in unused):
                continue
            used[name] = given.used_options() if isinstance(given, Section) else value
        return used

    @model_validator(mode="wrap")
    @classmethod
    def _suggest_nearest_keys(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        unknown = set(data) - set(cls.model_fields) if isinstance(data, dict) else set()
        if not unknown:
            return read(data)
        problems = [
            problem(cls.unknown_key(str(key)), (key,), data[key]) for key in data if key in unknown
        ]
        try:
            read({key: value for key, value in data.items() if key not in unknown})
        except ValidationError as error:
            problems += [problem(e["msg"], e["loc"], e["input"]) for e in error.errors()]
        raise ValidationError.from_exception_data(cls.__name__, problems)

    @classmethod
    def unknown_key(cls, key: str) -> str:
        """The message about a key that the section does not have."""
        return f"unknown key; {nearest(key, cls.model_fields)}"


def problem(message: str, loc: tuple[int | str, ...], value: Any) -> InitErrorDetails:
    """An error for pydantic to report at a key."""
    error = PydanticCustomError("config", "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=value)


def section_of(registry: Registry, key: str, data: Any) -> Any:
    """Read a section with the `Config` class of the component that it names."""
    if isinstance(data, Section):
        return data
    if not isinstance(data, dict) or not isinstance(data.get(key), str):
        raise ValueError(  # noqa: TRY004 - pydantic collects ValueErrors
            f'not a table with {key} = "NAME", where NAME names the {registry.kind}'
        )
    try:
        found = registry.load(data[key])
    except UnknownNameError as error:
        wrong = problem(str(error), (key,), data[key])
        raise ValidationError.from_exception_data(registry.kind, [wrong]) from error
    return found.Config.model_validate(data)


class EnvConfig(Section):
    """Options of every environment. Environments add their own."""

    id: str = ""
    """Name and version of the environment, as listed by `pettingllms list envs`; a library's game,
    as listed by `pettingllms list envs --all`; or `file.py:Class`."""
    solo: bool = False
    """Let one role act alone: the single-agent form of the environment."""
    limit_reward: float | None = None
    """Reward of an episode that a limit cuts, with rollout.on_limit = "reward". Left out: the value
    that the environment declares, which `pettingllms check` prints."""
    system_prompts: dict[str, str] = Field(default_factory=dict)
    """System prompts by role. Each replaces the system message of the role's observations, or
    precedes them if they have none. Not for workflows, whose programs write their prompts."""
    terse: bool = False
    """Short prompts without rules and answers without tags, a few dozen tokens, for tiny models
    trained from scratch."""


class AlgoConfig(Section):
    """Options of every algorithm. Algorithms add their own."""

    type: str = ""
    """Name of the algorithm, as listed by `pettingllms list algos`, or `file.py:Class`."""
