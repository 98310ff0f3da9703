"""Types of the files that hold a policy, as learners, engines and checkpoints exchange them."""

from collections.abc import Mapping
from pathlib import Path

Content = bytes | Path
"""The content of a file, or where it is. Files of full models are given by path, because no process
should hold a whole model."""
Files = Mapping[str, Content]
"""The files of one policy, by file name."""
Saved = Mapping[str, Files]
"""The files of several policies, by policy."""


MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
CRITIC_FILE = "critic.safetensors"
FOR_LEARNERS = (OPTIMIZER_FILE, CRITIC_FILE)
"""Files that inference engines do not get."""
