"""What a run leaves behind: its folder, its checkpoints, its numbers and who is told them."""

from pettingllms.runs.folder import RunFolder

__all__ = ["RunFolder"]
