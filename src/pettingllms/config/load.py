"""Reading a configuration: TOML, then dotted overrides, then every problem at once."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import TypeAdapter, ValidationError

from pettingllms.config.checks import build_env, cross_check, resolve
from pettingllms.config.overrides import apply_overrides
from pettingllms.config.run import RunConfig
from pettingllms.errors import ConfigError, nearest


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a TOML file and overrides such as `rollout.num_samples=8` into a checked run."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"not TOML: {error}"]) from None
    return parse_config(data, str(path), apply_overrides(data, overrides))


def parse_config(
    data: Mapping[str, Any], source: str = "configuration", problems: Sequence[str] = ()
) -> RunConfig:
    """Check plain data as a run; raise one ConfigError with every problem found."""
    sections, unreadable = _read_sections(data)
    env, unmade = build_env(sections)
    found = [*problems, *unreadable, *unmade, *cross_check(sections, env)]
    if found:
        raise ConfigError(source, found)
    return resolve(RunConfig(**sections), env)


def to_toml(config: RunConfig) -> str:
    """The configuration as TOML that reads back as the same run."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def problems_in(error: ValidationError, *where: str) -> list[str]:
    """One line for each thing that pydantic refused."""
    problems = []
    for e in error.errors():
        loc = [*where, *map(str, e["loc"])]
        if loc[0] == "policies" and len(loc) > 3:
            del loc[2]  # pydantic puts the kind of the policy here, which is no key of the file
        problems.append(f"{'.'.join(loc)}: {e['msg'].removeprefix('Value error, ')}")
    return problems


def _read_sections(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Read each section by itself, so that a problem in one does not hide those of another."""
    fields = RunConfig.model_fields
    sections: dict[str, Any] = {}
    problems = [f"{key}: unknown key; {nearest(key, fields)}" for key in data if key not in fields]
    for name, field in fields.items():
        if name in data:
            try:
                reader = TypeAdapter(field.rebuild_annotation())
                sections[name] = reader.validate_python(data[name], strict=True)
            except ValidationError as error:
                problems += problems_in(error, name)
        elif field.is_required():
            problems.append(f"{name}: missing. {field.description}")
        else:
            sections[name] = field.get_default(call_default_factory=True)
    return sections, problems
