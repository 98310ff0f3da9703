"""Types of the files that hold a policy, as learners, engines and checkpoints exchange them."""

from collections.abc import Mapping

Files = Mapping[str, bytes]
"""The files of one policy, by file name."""
Saved = Mapping[str, Files]
"""The files of several policies, by policy."""
