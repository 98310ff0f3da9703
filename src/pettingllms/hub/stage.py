"""What is uploaded, as a folder: weights or an adapter, card, curve and config."""

import json
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.algos.credit import turn_reward
from pettingllms.config import RunConfig
from pettingllms.errors import HubError
from pettingllms.experiments.curves import PlotOptions, make_panels
from pettingllms.hub.card import (
    CONFIG,
    CURVE,
    config_toml,
    model_card,
    model_metadata,
)
from pettingllms.hub.dataset_card import dataset_card, dataset_metadata
from pettingllms.hub.facts import RunFacts
from pettingllms.policies.files import ADAPTER_CONFIG, Saved
from pettingllms.training.export import export
from pettingllms.types import Episode, Scored, read_episodes
from pettingllms.types.episode_files import step_of

CARD = "README.md"


def stage_weights(facts: RunFacts, saved: Saved, folder: Path) -> None:
    """Write the policy as Transformers, PEFT and vLLM load it, without folders of this machine."""
    export(facts.config, saved, facts.policy, folder)
    own = {"base_model_name_or_path": facts.base.name, "revision": facts.base.revision or None}
    _set(folder / ADAPTER_CONFIG, own)
    _set(folder / "config.json", {"_name_or_path": facts.base.name})


def _set(file: Path, values: dict[str, Any]) -> None:
    """Change keys that a JSON file has."""
    if file.is_file():
        data = json.loads(file.read_text(encoding="utf-8"))
        data |= {key: value for key, value in values.items() if key in data}
        file.write_text(json.dumps(data, indent=2), encoding="utf-8")


def require_base(facts: RunFacts) -> None:
    """Raise HubError if an adapter's base has no hub name, since no one could load it."""
    if facts.is_adapter and not facts.base.name:
        raise HubError(
            f"policies.{facts.policy}: is an adapter of the folder '{facts.base.folder}', whose "
            "name on the hub is not known; give it with --base OWNER/NAME"
        )


def write_card(facts: RunFacts, repo: str, folder: Path, episodes: str = "") -> None:
    """Write the card with its figure and the config."""
    folder.mkdir(parents=True, exist_ok=True)
    has_curve = _draw(facts, folder / CURVE)
    page = model_card(facts, repo, has_curve, episodes)
    _write(folder / CARD, model_metadata(facts, repo), page)
    (folder / CONFIG).write_text(config_toml(facts), encoding="utf-8")


def stage_episodes(
    facts: RunFacts, repo: str, model: str, folder: Path, notify: Callable[[str], None]
) -> None:
    """Write the dataset: the run's own shards up to the checkpoint, and a line per turn."""
    files = {file: step for file, step in facts.run.episode_files().items() if step <= facts.step}
    if not files:
        raise HubError(f"{facts.run.path}: has no episodes; log.episodes = true writes them")
    counts = {"steps": len(set(files.values())), "episodes": 0, "turns": 0}
    (folder / "episodes").mkdir(parents=True)
    (folder / "turns").mkdir()
    for file in sorted(files):
        notify(f"reading {file.name}")
        _link(file, folder / "episodes" / file.name)
        with (folder / "turns" / f"{file.stem}.jsonl").open("w", encoding="utf-8") as lines:
            for episode in read_episodes(file):
                counts["episodes"] += 1
                counts["turns"] += len(episode.turns)
                for row in _turn_rows(facts.config, step_of(file), episode):
                    lines.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    page = dataset_card(facts, repo, model, counts)
    _write(folder / CARD, dataset_metadata(facts, counts["turns"]), page)


def _turn_rows(config: RunConfig, step: int | None, episode: Episode) -> Iterator[dict[str, Any]]:
    """The turns of an episode as plain data; images of prompts are left out."""
    for at, turn in enumerate(episode.turns):
        reward = turn_reward(episode, turn, config.reward)
        yield {
            "step": step,
            "episode": episode.id,
            "task": episode.task.id,
            "turn": at,
            "role": turn.role,
            "policy": turn.policy,
            "policy_version": turn.policy_version,
            "messages": [{"role": one.speaker, "content": one.text} for one in turn.messages],
            "reply": turn.text,
            "reward": reward.value if isinstance(reward, Scored) else None,
            "advantage": turn.credit.advantage,
            "success": episode.success.get(turn.role),
        }


def _write(path: Path, metadata: dict[str, Any], page: str) -> None:
    """A card whose metadata huggingface_hub reads back as they were."""
    from huggingface_hub import RepoCard, metadata_load
    from huggingface_hub.repocard_data import CardData

    text = f"---\n{CardData(**metadata).to_yaml()}\n---\n\n{page}"
    RepoCard(text)
    path.write_text(text, encoding="utf-8")
    assert metadata_load(path) == metadata  # noqa: S101 - our own mistake


def _draw(facts: RunFacts, path: Path) -> bool:
    """The learning curves; False without matplotlib or metrics."""
    panels = make_panels([facts.run], PlotOptions())
    if find_spec("matplotlib") is None or not panels:
        return False
    from pettingllms.experiments.curve_figure import draw_learning_curves

    draw_learning_curves(panels, facts.run.name, "step", path)
    return True


def _link(file: Path, to: Path) -> None:
    """The same file under another name, without a copy if the disk allows it."""
    try:
        to.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, to)
