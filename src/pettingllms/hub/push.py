"""Upload of a policy and its episodes through huggingface_hub.

The token is the one of `hf auth login` or HF_TOKEN. It is never read here, only its presence, and
never part of a message.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.errors import HubError, describe
from pettingllms.hub.facts import RunFacts, check_repo, model_folder, read_facts
from pettingllms.hub.stage import require_base, stage_episodes, stage_weights, write_card
from pettingllms.policies.files import Saved

TIMEOUT = 10.0
"""Seconds for the hub to describe the base."""
TAG = "pettingllms"
LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"


@dataclass(frozen=True, slots=True)
class Push:
    """What is pushed, and where."""

    run: Path
    config: RunConfig
    saved: Saved
    policy: str
    step: int
    repo: str
    base: str = ""
    """Hub name of the base, if the config names a folder."""
    private: bool = False
    episodes: bool = False

    @property
    def episodes_repo(self) -> str:
        """The dataset repository; empty if episodes are not pushed."""
        return f"{self.repo}-episodes" if self.episodes else ""


def preview(push: Push, folder: Path) -> None:
    """Write the card with its figure and config, and upload nothing. Asks no hub."""
    _require_package()
    facts = _facts(push, ask_hub=False)
    require_base(facts)
    write_card(facts, push.repo, folder, push.episodes_repo)


def upload(push: Push, notify: Callable[[str], None]) -> list[str]:
    """Upload the policy, and its episodes if asked for; the addresses of the repositories."""
    _require_package()
    from huggingface_hub import HfApi, get_token

    if not get_token():
        raise HubError(f"not logged in to the hub; {LOGIN}")
    facts = _facts(push, ask_hub=True)
    require_base(facts)
    api = HfApi(library_name=TAG)
    with _told(push.repo):
        found = [_create(api, push, push.repo, "model")]
        if push.episodes:
            found.append(_create(api, push, push.episodes_repo, "dataset"))
    # On the disk of the run: files are linked where the disk allows it, not copied.
    with tempfile.TemporaryDirectory(prefix=".push-", dir=push.run) as scratch:
        model = Path(scratch) / "model"
        stage_weights(facts, push.saved, model)
        write_card(facts, push.repo, model, push.episodes_repo)
        notify(f"uploading {push.policy} of step {push.step} to {push.repo}")
        message = f"{push.policy} at step {push.step} of {facts.run.name}"
        with _told(push.repo):
            api.upload_folder(repo_id=push.repo, folder_path=model, commit_message=message)
        if push.episodes:
            data = Path(scratch) / "episodes"
            data.mkdir()
            stage_episodes(facts, push.episodes_repo, push.repo, data, notify)
            notify(f"uploading episodes to {push.episodes_repo}")
            with _told(push.episodes_repo):
                api.upload_folder(
                    repo_id=push.episodes_repo,
                    folder_path=data,
                    repo_type="dataset",
                    commit_message=f"Episodes until step {push.step} of {facts.run.name}",
                )
    return found


def _facts(push: Push, ask_hub: bool) -> RunFacts:
    check_repo(push.repo)
    facts = read_facts(push.run, push.config, push.policy, push.step, push.base)
    model = push.config.policies[push.policy].model  # type: ignore[union-attr]
    name, own, link = _license(model_folder(model), facts.base.name if ask_hub else "")
    base = replace(facts.base, license=name, license_name=own, license_link=link)
    return replace(facts, base=base)


def _license(folder: Path | None, name: str) -> tuple[str, str, str]:
    """The license of a model: from the card in its folder, else from the hub; empty if unknown."""
    from huggingface_hub import HfApi, metadata_load

    card = folder / "README.md" if folder else None
    found: Any = metadata_load(card) if card and card.is_file() else None
    if not found and name:
        try:
            data: Any = HfApi(library_name=TAG).model_info(name, timeout=TIMEOUT).card_data
        except _failures():
            data = None
        found = data.to_dict() if data is not None else None
    found = found or {}
    keys = ("license", "license_name", "license_link")
    texts = [found.get(key) for key in keys]
    first, second, third = (text if isinstance(text, str) else "" for text in texts)
    return first, second, third


def _create(api: Any, push: Push, repo: str, kind: str) -> str:
    """Create a repository, or check that an existing one may be written; its address."""
    url = str(api.create_repo(repo, repo_type=kind, private=push.private or None, exist_ok=True))
    info = api.repo_info(repo, repo_type=kind)
    if push.private and not info.private:
        raise HubError(
            f"--private: {repo} exists and is public; make it private on the hub, or give another "
            "name"
        )
    others = [one.rfilename for one in info.siblings or () if one.rfilename != ".gitattributes"]
    tags = (info.card_data.to_dict() if info.card_data else {}).get("tags") or []
    if others and TAG not in tags:
        raise HubError(
            f"{repo} has files that `pettingllms push` did not write, such as {others[0]}; give "
            "another name"
        )
    return url


@contextmanager
def _told(repo: str) -> Iterator[None]:
    """Turn errors of the hub and of the network into one line without the token."""
    try:
        yield
    except _failures() as error:
        from huggingface_hub import get_token

        text = describe(error).replace(get_token() or "\0", "***")
        raise HubError(f"{repo}: the hub refused or did not answer ({text}); {LOGIN}") from None


def _failures() -> Any:
    """What huggingface_hub raises. The bases include the HTTP library's error."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, ValueError, RuntimeError, *HfHubHTTPError.__bases__)


def _require_package() -> None:
    if find_spec("huggingface_hub") is None:
        raise HubError("needs the package huggingface_hub; run `pip install 'pettingllms[data]'`")
