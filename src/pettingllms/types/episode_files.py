"""Files of episodes: shards, and JSON lines that stand alone.

A step of a run has one shard per rollout worker. Readers take a file, a step such as
`episodes/step-000012`, or a folder, and yield episodes in order.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pettingllms.errors import RecordError
from pettingllms.types.episodes import Episode
from pettingllms.types.image_files import image_loader, store_images
from pettingllms.types.records import episode_from_json, episode_line, images_in
from pettingllms.types.shards import SUFFIX, Shard, ShardWriter, Summarize

LINES = ".jsonl"
EPISODES, SINGLE = "episodes", "episodes.jsonl"
"""Episodes of a run, and those of a rollout."""
STEP = re.compile(r"step-(\d{6,})(?:-\d{3,})?")


def step_of(path: Path) -> int | None:
    """The step whose episodes a file has; None for other files."""
    found = STEP.fullmatch(path.stem)
    return int(found[1]) if found and path.suffix in (LINES, SUFFIX) else None


def shard_path(folder: Path, step: int, shard: int = 0) -> Path:
    """Path of a shard of a step. Every rollout worker has its own number."""
    return folder / f"step-{step:06d}-{shard:03d}{SUFFIX}"


def episode_files(path: Path) -> list[Path]:
    """The files that a path stands for, in order: itself, those of a step, or those of a run."""
    if path.is_file():
        return [path]
    if path.is_dir():
        folder = path / EPISODES if (path / EPISODES).is_dir() else path
        found = [one for one in folder.iterdir() if step_of(one) is not None]
        single = [path / SINGLE] if (path / SINGLE).is_file() else []
        return sorted(found, key=_order) + single
    found = [path.with_name(path.name + LINES), *path.parent.glob(f"{path.name}-*{SUFFIX}")]
    return sorted((one for one in found if one.is_file() and step_of(one) is not None), key=_order)


def _order(path: Path) -> tuple[int, int, str]:
    return step_of(path) or 0, len(path.name), path.name


def write_episodes(
    path: Path, episodes: Iterable[Episode], summarize: Summarize | None = None
) -> int:
    """Write episodes as they arrive, with their images; the number of episodes written.

    A path that ends with `.zip` becomes a shard, whose index has what `summarize` returns; any
    other has one line of JSON per episode.
    """
    if path.suffix == SUFFIX:
        with ShardWriter(path, summarize) as writer:
            for episode in episodes:
                writer.append(episode)
        return writer.num_episodes
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for episode in episodes:
            store_images(path, (image for turn in episode.turns for image in images_in(turn)))
            file.write(episode_line(episode))
            count += 1
    return count


def read_episodes(path: Path) -> Iterator[Episode]:
    """Read the episodes of a file, a step or a run, with one frame or line in memory at a time."""
    files = episode_files(path)
    if not files and not path.is_dir():
        raise FileNotFoundError(f"no file, step or folder of episodes at {path}")
    for file in files:
        yield from Shard(file).episodes() if file.suffix == SUFFIX else _read_lines(file)


def _read_lines(path: Path) -> Iterator[Episode]:
    load_image = image_loader(path)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield episode_from_json(json.loads(line), load_image)
            except RecordError as error:
                raise RecordError(f"{path}, line {number}: {error}") from None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise RecordError(
                    f"{path}, line {number}: not an episode ({error!r}); the file may be truncated"
                ) from error
