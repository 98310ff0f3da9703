"""vLLM's arguments and environment variables for an engine."""

import os
from typing import Any

from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm_worker import OWNER
from pettingllms.runtime.resources import UNBOUND
from pettingllms.vision.families import supports_images

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def vllm_environment(spec: EngineSpec) -> dict[str, str]:
    """Environment variables that must be set before vLLM is imported."""
    variables = {
        OWNER: str(os.getpid()),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if spec.loopback:
        variables |= {"VLLM_HOST_IP": "127.0.0.1"}
        variables |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if spec.device != "cpu":
        return variables
    if spec.cores == UNBOUND:
        variables["OMP_NUM_THREADS"] = str(spec.num_threads)
    return variables | {
        "VLLM_CPU_KVCACHE_SPACE": str(spec.config.cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": spec.cores,
        "OMP_WAIT_POLICY": "passive",
        "TORCHDYNAMO_DISABLE": "1",  # else the first request waits for a C++ compiler
    }


def vllm_options(spec: EngineSpec) -> dict[str, Any]:
    """vLLM's arguments, without our worker extension."""
    config = spec.config
    options: dict[str, Any] = {
        "model": str(spec.model),
        "dtype": spec.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel,
        "enforce_eager": spec.device == "cpu",
        "skip_tokenizer_init": not config.guided,
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": spec.sleeps and spec.device != "cpu",
        "disable_log_stats": True,
        "seed": 0,
    }
    if supports_images(spec.model):
        options |= {"skip_tokenizer_init": False, "limit_mm_per_prompt": {"video": 0}}
    if config.tensor_parallel > 1:  # inside a placement group vLLM would choose Ray's executor
        options["distributed_executor_backend"] = "mp"
    if spec.num_adapters:
        options |= {
            "enable_lora": True,
            "lora_dtype": "auto",  # the learner's float32 adapters are cast to `dtype` at load
            "max_loras": spec.num_adapters * spec.num_versions + spec.num_opponents,
            "max_cpu_loras": spec.num_adapters * (1 + spec.num_versions) + spec.num_snapshots,
            "max_lora_rank": next(r for r in LORA_RANKS if r >= spec.max_rank),
            "enable_tower_connector_lora": spec.adapts_vision,
        }
    if spec.device == "cpu":
        # Chunked prefill crashes vLLM's CPU worker if the request has a seed.
        options["enable_chunked_prefill"] = False
    else:
        options["gpu_memory_utilization"] = config.gpu_memory_utilization
    return options
