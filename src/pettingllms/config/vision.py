"""Which policies take images: a run that shows images to another is rejected before it starts."""

from pathlib import Path

from pettingllms.config.policies import PolicyConfig
from pettingllms.vision.support import ADVICE, supports_images


def image_problem(policy: PolicyConfig, model: Path | None = None) -> str:
    """Why a policy cannot play a role that is shown images; empty if it can. `model` is the folder
    in which its model was found; without it, a model that is given by name is not known yet."""
    match policy.kind:
        case "scripted":
            return ""  # reads the state
        case "api":
            reason = f"a server's model ('{policy.model}') is sent text alone"
            return "" if policy.supports_images else f"{reason}; set sees = true if it takes images"
        case _:
            folder = model or Path(policy.model).expanduser()
            known = (folder / "config.json").is_file()
            return (
                f"'{policy.model}' only reads; {ADVICE}"
                if known and not supports_images(folder)
                else ""
            )
