"""Names of the files of a policy, as Transformers, PEFT and vLLM use them; without torch."""

MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
CRITIC_FILE = "critic.safetensors"
FOR_LEARNERS = (OPTIMIZER_FILE, CRITIC_FILE)
"""Files that inference engines do not get."""
