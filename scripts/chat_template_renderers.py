"""Renders conversations with the package `renderers`, in its own virtual environment.

Reads JSON from standard input: `jobs`, each with folder, model, kwargs and conversations. Prints
its version and the ids, or the error, of every conversation.
"""

import json
import sys
from typing import Any

import renderers
from transformers import AutoTokenizer


def main() -> None:
    """Render all jobs."""
    done = [rendered(job) for job in json.load(sys.stdin)["jobs"]]
    json.dump({"version": renderers.__version__, "rendered": done}, sys.stdout)


def rendered(job: dict[str, Any]) -> dict[str, Any]:
    """The ids of each conversation of a family."""
    tokenizer = AutoTokenizer.from_pretrained(
        job["folder"], local_files_only=True, mistral_format=False
    )
    tokenizer.name_or_path = job["model"]  # it chooses a renderer by this name
    return {name: attempt(tokenizer, job, one) for name, one in job["conversations"].items()}


def attempt(tokenizer: Any, job: dict[str, Any], one: dict[str, Any]) -> list[int] | str:
    """The ids of a conversation, or the first line of an error."""
    config = None if job["is_known"] else renderers.DefaultRendererConfig()
    try:
        renderer = renderers.create_renderer(
            tokenizer, config, chat_template_kwargs=job["kwargs"] | one["kwargs"]
        )
        return [
            int(each)
            for each in renderer.render_ids(
                one["messages"], tools=one["tools"] or None, add_generation_prompt=one["opens"]
            )
        ]
    except Exception as error:  # noqa: BLE001 - whatever it raises is a result
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]


if __name__ == "__main__":
    main()
