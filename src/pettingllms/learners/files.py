"""Names of the files that hold a policy, as Transformers, PEFT and vLLM know them."""

MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
CRITIC_FILE = "critic.safetensors"
FOR_LEARNERS = (OPTIMIZER_FILE, CRITIC_FILE)
"""What no sampler is given."""
