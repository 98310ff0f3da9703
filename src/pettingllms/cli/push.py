"""`push`: a trained policy, its card and its episodes to the Hugging Face hub."""

from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console
from pettingllms.cli.eval import weights_of
from pettingllms.errors import CheckpointError, ConfigError, nearest
from pettingllms.hub.push import Push, preview, upload
from pettingllms.runs.checkpoint import checkpoints, read_manifest
from pettingllms.runs.folder import CHECKPOINTS, CONFIG_FILE


def push_policy(
    run: Path,
    repo: str,
    policy: str | None,
    checkpoint: Path | None,
    *,
    base: str,
    private: bool,
    episodes: bool,
    out: Path | None,
) -> None:
    """Upload a policy, or write its card to the folder `out`."""
    if not (run / CONFIG_FILE).is_file():
        raise ConfigError(str(run), ["holds no run; `pettingllms train CONFIG` starts one"])
    if checkpoint is None:
        checkpoint = next(checkpoints(run / CHECKPOINTS), None)
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint yet; train.save_every sets how often")
    config, saved = weights_of(run, [], checkpoint, needed=True)
    trained = {name: files for name, files in saved.items() if name in config.policies}
    if policy is None and len(trained) == 1:
        policy = next(iter(trained))
    if policy is None:
        names = ", ".join(trained)
        raise ConfigError("--policy", [f"several were trained: {names}; name one"])
    if policy not in trained:
        raise ConfigError("--policy", [f"'{policy}' was not trained; {nearest(policy, trained)}"])
    step = read_manifest(checkpoint)[0].step
    wanted = Push(run, config, trained, policy, step, repo, base, private, episodes)
    if out is not None:
        preview(wanted, out)
        text = f"Card written to [bold]{escape(str(out))}[/]; nothing was uploaded."
        console.print(text, soft_wrap=True)
        return
    for url in upload(wanted, lambda text: console.print(escape(text))):
        console.print(f"Pushed to [bold]{escape(url)}[/]", soft_wrap=True)
