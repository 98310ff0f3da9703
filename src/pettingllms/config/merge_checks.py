"""Checks of `inference.merge_single_adapter`: one adapter per base, alone, in float32."""

from collections.abc import Iterator, Mapping
from typing import Any

KEY = "inference.merge_single_adapter"


def merge_problems(sections: Mapping[str, Any]) -> Iterator[str]:
    """Why an adapter cannot be merged into its base for sampling."""
    inference = sections.get("inference")
    if inference is None or not inference.merge_single_adapter:
        return
    if not inference.capabilities.weight_transfer:
        yield f"{KEY}: '{inference.engine}' cannot take new weights of a whole model; leave it out"
    for section in ("inference", "learner"):
        if section in sections and (problem := dtype_problem(section, sections[section].dtype)):
            yield problem
    if "learner" in sections and sections["learner"].base_bits is not None:
        yield (
            f"{KEY}: the learner's base is quantized, so it has no weights to merge into; leave "
            "learner.base_bits out"
        )
    yield from _beside(sections)


def dtype_problem(section: str, dtype: str) -> str:
    """Why an adapter cannot be merged in a dtype, or empty."""
    if dtype != "bfloat16":
        return ""
    return (
        f"{KEY}: {section}.dtype is bfloat16, in which the sum of a base and an adapter mostly "
        f'rounds to the base; set {section}.dtype = "float32", or leave {KEY} out'
    )


def _beside(sections: Mapping[str, Any]) -> Iterator[str]:
    """What else a base would have to serve."""
    policies = sections.get("policies", {})
    lora = {name: policy.model for name, policy in policies.items() if policy.kind == "lora"}
    if "policies" in sections and not lora:
        yield f'{KEY}: no policy has kind = "lora"; leave the key out'
    for model in dict.fromkeys(lora.values()):
        served = [n for n, p in policies.items() if p.kind in ("lora", "frozen")
                  and p.model == model]  # fmt: skip
        if len(served) > 1:
            yield (
                f"{KEY}: '{model}' serves {', '.join(served)}, and a merged base can serve only "
                "one policy; leave the key out, or give each its own model"
            )
    league, co_players = sections.get("league"), sections.get("co_players")
    if league and league.snapshot_every:
        yield f"{KEY}: a merged base cannot serve snapshots (league.snapshot_every); leave it out"
    if co_players and co_players.snapshots():
        yield f"{KEY}: a merged base cannot serve snapshots ([co_players]); leave it out"
