"""Reading a configuration: TOML, then dotted overrides, then a list of all problems."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from pettingllms.config.checks import build_env, cross_check, resolve
from pettingllms.config.extends import KEY as EXTENDS
from pettingllms.config.extends import ONLY_IN_FILES, read_config
from pettingllms.config.renames import migrate, new_name
from pettingllms.config.run import RunConfig
from pettingllms.config.section import EnvConfig
from pettingllms.config.toml_files import make_paths_absolute, read_toml
from pettingllms.errors import ConfigError, DataError, MissingDataError, describe, nearest

EXAMPLES = {
    "env": '[env] id = "tic_tac_toe-v1"',
    "algo": '[algo] type = "grpo"',
    "policies": '[policies.shared] kind = "full" model = "FOLDER"',
}
NAMED = {"env": "id", "algo": "type", "loss": "type"}
"""Keys that say which class reads their section."""


def load_config(
    path: Path,
    overrides: Sequence[str] = (),
    of_run: bool = False,
    may_extend: bool = True,
    needs_data: bool = True,
) -> RunConfig:
    """Read a TOML file and overrides such as `rollout.num_samples=8` into a checked run.

    `of_run`: the file is in a run folder, so it extends no other file, and names of earlier
    versions are accepted. `may_extend`: whether another file is read that it names under `extends`.
    `needs_data`: whether the published data sets that it names must be on this machine.

    Paths to user classes are relative to the TOML file, and in overrides to the working directory.
    """
    data = read_config(path) if may_extend and not of_run else read_toml(path)
    data = migrate(data) if of_run else data
    problems = apply_overrides(data, overrides)
    make_paths_absolute(data, Path())
    return parse_config(data, str(path), problems, needs_data)


def parse_config(
    data: Mapping[str, Any],
    source: str = "configuration",
    problems: Sequence[str] = (),
    needs_data: bool = True,
) -> RunConfig:
    """Validate plain data as a run; raise one ConfigError that lists all problems."""
    sections, unreadable = _read_sections(data)
    env, error = build_env(sections)
    if isinstance(error, MissingDataError) and not needs_data:
        env, error = build_env({**sections, "env": _with_own_data(sections["env"])})
    env_problems = [] if error is None else [_env_problem(sections["env"], error)]
    found = [*problems, *unreadable, *env_problems, *cross_check(sections, env)]
    if found:
        raise ConfigError(source, found) from error
    return resolve(RunConfig(**sections), env)


def _with_own_data(section: EnvConfig) -> EnvConfig:
    """The section with the problems that the environment brings itself."""
    keys = {"data", "test_data"} & type(section).model_fields.keys()
    return section.model_copy(update=dict.fromkeys(keys, ""))


def _env_problem(section: EnvConfig, error: Exception) -> str:
    """Why the environment cannot be built; problems with a data file name its key."""
    if isinstance(error, DataError):
        named = [(k, v) for k, v in section if isinstance(v, str) and v and k != "id"]
        for key, value in named:
            if value.rpartition(":")[2] in str(error) or value.partition(":")[0] in str(error):
                return f"env.{key}: {error}"
    return f"env: cannot be created: {describe(error)}"


def to_toml(config: RunConfig, used_only: bool = False) -> str:
    """The configuration as TOML that reads back as the same run.

    `used_only` leaves out options that are off or have no effect by default.
    """
    whole = config.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps(config.used_options() if used_only else whole)


def problems_in(error: ValidationError, *where: str) -> list[str]:
    """One line per validation error: key, reason and value."""
    found = [(".".join(_keys(where, e)), e) for e in error.errors()]
    return [f"{key}: {_renamed(key) or _reason(e)}" for key, e in found]


def _renamed(key: str) -> str:
    new = new_name(key)
    return f"renamed; write {new}" if new else ""


def _keys(where: tuple[str, ...], e: ErrorDetails) -> list[str]:
    keys = [*where, *map(str, e["loc"])]
    if keys[0] == "policies" and len(keys) > 3:
        del keys[2]  # pydantic inserts the policy's kind, which is not a key of the file
    return keys


def _reason(e: ErrorDetails) -> str:
    match e["type"]:
        case "missing":
            return "missing, and has no default; set it"
        case "union_tag_invalid":
            tag, known = e["ctx"]["tag"], e["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"kind is '{tag}'; {nearest(tag, known)}"
        case "union_tag_not_found":
            return "kind is missing; set full, lora, frozen, api or scripted"
        case "config" | "value_error":
            return e["msg"].removeprefix("Value error, ")
        case _:
            return f"{e['msg']}, got {e['input']!r:.60}"


def _read_sections(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Read each section separately, so that problems in one do not hide those of another."""
    fields = RunConfig.model_fields
    sections: dict[str, Any] = {}
    unknown = [key for key in data if key not in fields and key != EXTENDS]
    problems = [ONLY_IN_FILES] if EXTENDS in data else []
    problems += [
        f"{key}: {_renamed(key) or f'unknown key; {nearest(key, fields)}'}" for key in unknown
    ]
    for name, field in fields.items():
        if name in data:
            reader = TypeAdapter[Any](field.rebuild_annotation())
            problems += _read_section(sections, name, data[name], reader)
        elif field.is_required():
            problems.append(f"{name}: missing. {field.description} Such as {EXAMPLES[name]}")
        else:
            sections[name] = field.get_default(call_default_factory=True)
    return sections, problems


def _read_section(
    sections: dict[str, Any], name: str, data: Any, reader: TypeAdapter[Any]
) -> list[str]:
    """Add a section and return its problems.

    A section with invalid keys is read again without them, so that its other keys can be checked.
    Policies are not: a role may name the invalid one.
    """
    try:
        sections[name] = reader.validate_python(data, strict=True)
    except ValidationError as error:
        problems = problems_in(error, name)
        bad = {e["loc"][0] for e in error.errors() if e["loc"]}
        if bad and name != "policies" and NAMED.get(name) not in bad:
            rest = {key: value for key, value in data.items() if key not in bad}
            problems += _read_section(sections, name, rest, reader)
        return problems
    return []


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Merge overrides into the data; return the problems of those that cannot be merged."""
    return [problem for raw in overrides if (problem := _apply(data, raw))]


def _apply(data: dict[str, Any], raw: str) -> str | None:
    key, equals, value = raw.partition("=")
    try:
        path = tomllib.loads(f"{key}={{}}") if equals else {}
    except tomllib.TOMLDecodeError:
        path = {}
    if not path:
        return (
            f"override '{raw}' is not of the form section.key=value, such as rollout.num_samples=8"
        )
    change: Any = _value(value.strip())
    for name in reversed(_names(path)):
        change = {name: change}
    return _merge(data, change, raw)


def _names(path: dict[str, Any]) -> list[str]:
    """The parts of a dotted key, with TOML's quoting rules."""
    names = []
    while path:
        ((name, path),) = path.items()
        names.append(name)
    return names


def _merge(table: dict[str, Any], change: dict[str, Any], raw: str) -> str | None:
    for name, value in change.items():
        if not isinstance(value, dict):
            table[name] = value
            continue
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return f"override '{raw}': '{name}' is a value, not a table"
        if problem := _merge(inner, value, raw):
            return problem
    return None


def _value(text: str) -> Any:
    """A TOML value; anything else is a string, so that names need no quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text
