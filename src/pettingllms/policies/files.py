"""What travels between learners, samplers and checkpoints: the files that hold a policy."""

from collections.abc import Mapping

Files = Mapping[str, bytes]
"""Of one policy, by their names."""
Saved = Mapping[str, Files]
"""Of several policies, by theirs."""
