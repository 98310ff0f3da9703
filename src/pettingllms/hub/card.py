"""Model cards: the metadata that the hub reads, and the page that people read."""

import json
from collections.abc import Sequence
from typing import Any

import tomli_w

from pettingllms.hub.facts import RunFacts, Score

CURVE = "learning_curve.png"
CONFIG = "training_config.toml"
HOME = "https://github.com/pettingllms/pettingllms"
TITLES = {
    "eval_success": "success on test tasks",
    "eval_reward": "reward on test tasks",
    "success": "success on training tasks",
    "reward": "reward on training tasks",
}
ESCAPED_BAR = "\\|"
CHAT = (("user", "..."),)
"""Stands for a prompt if none was recorded."""


def model_metadata(facts: RunFacts, repo: str) -> dict[str, Any]:
    """Metadata of a model card."""
    base, env = facts.base, facts.config.env.id
    found: dict[str, Any] = {}
    if base.name:
        found["base_model"] = base.name
        found["base_model_relation"] = "adapter" if facts.is_adapter else "finetune"
    found["library_name"] = "peft" if facts.is_adapter else "transformers"
    found |= _license(facts)
    found["pipeline_tag"] = "text-generation"
    tags = ["pettingllms", "reinforcement-learning", "multi-agent", facts.config.algo.type]
    found["tags"] = [*dict.fromkeys([*tags, *(["lora"] if facts.is_adapter else [])])]
    results = [_result(one, env) for one in facts.scores if one.name == "eval_success"]
    if results:
        found["model-index"] = [{"name": repo.partition("/")[2], "results": results}]
    return found


def model_card(facts: RunFacts, repo: str, has_curve: bool, episodes: str = "") -> str:
    """The page of a policy; `episodes` is the dataset repository with its episodes, if any."""
    parts = [f"# {markdown(repo.partition('/')[2])}", _intro(facts)]
    if has_curve:
        parts.append(f"![Learning curves of the run]({CURVE})")
    parts += ["## Results", _results(facts), "## Use it", _use(facts, repo)]
    if facts.example:
        parts += ["## Prompt", _prompt(facts)]
    parts += ["## Training", _training(facts)]
    if episodes:
        url = f"https://huggingface.co/datasets/{episodes}"
        parts.append(f"Recorded episodes of the run: [{markdown(episodes)}]({url}).")
    parts += ["## Limits", _limits(facts)]
    return "\n\n".join(parts) + "\n"


def config_toml(facts: RunFacts) -> str:
    """The config of the run without folders, servers and accounts."""
    return tomli_w.dumps(facts.shared_config())


def _license(facts: RunFacts) -> dict[str, str]:
    """The license of the base, under which derived weights stand."""
    base = facts.base
    found = {"license": base.license} if base.license else {}
    if base.license == "other":
        found |= {"license_name": base.license_name} if base.license_name else {}
        found |= {"license_link": base.license_link} if base.license_link else {}
    return found


def _result(score: Score, env: str) -> dict[str, Any]:
    return {
        "task": {"type": "reinforcement-learning", "name": f"role {score.role}"},
        "dataset": {"name": env, "type": env},
        "metrics": [{"type": "success_rate", "value": score.last, "name": TITLES[score.name]}],
    }


def _intro(facts: RunFacts) -> str:
    config, base = facts.config, facts.base
    what = "A LoRA adapter" if facts.is_adapter else "A model"
    link = f"[{markdown(base.name)}](https://huggingface.co/{base.name})"
    model = link if base.name else f"`{base.folder}`, a model that is on no hub"
    roles = " and ".join(f"`{role}`" for role in facts.roles) or f"`{facts.policy}`"
    others = [name for name in config.trained_policies() if name != facts.policy]
    names = ", ".join(f"`{name}`" for name in sorted(others))
    team = f" It was trained together with {names}, which this repository does not have."
    plural = "s" if len(facts.roles) > 1 else ""
    return (
        f"{what} trained with reinforcement learning (`{config.algo.type}`) from {model}. It plays "
        f"the role{plural} {roles} of the environment `{config.env.id}` of [PettingLLMs]({HOME})."
        f"{team if others else ''}"
    )


def _results(facts: RunFacts) -> str:
    if not facts.scores:
        return "The run recorded no metrics of its roles."
    rows = [
        [
            f"`{one.role}`",
            TITLES[one.name],
            f"{_value(one, one.first)} (step {one.first_step})",
            f"{_value(one, one.last)} (step {one.step})",
        ]
        for one in facts.scores
    ]
    shown = table(["role", "measure", "first", "last"], rows)
    evaluated = [one for one in facts.scores if one.name == "eval_success"]
    how = f"`pettingllms eval` repeats the evaluation ({facts.config.eval.num_tasks} test tasks)."
    return f"{shown}\n\n{how}" if evaluated else shown


def _use(facts: RunFacts, repo: str) -> str:
    base, messages = facts.base.name, json.dumps(list(map(_message, CHAT)))
    quoted = json.dumps(repo)
    chat = (
        f'messages = {messages}  # as under "Prompt"\n'
        "inputs = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True'
        f"{_template_arguments(facts)}\n)\n"
        f"output = model.generate(**inputs, max_new_tokens={_length(facts)})\n"
        'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]))'
    )
    if facts.is_adapter:
        load = (
            "from peft import AutoPeftModelForCausalLM\n"
            "from transformers import AutoTokenizer\n\n"
            f"model = AutoPeftModelForCausalLM.from_pretrained({quoted})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(base)})\n"
        )
        rank = getattr(facts.config.policies[facts.policy], "rank", 16)
        serve = (
            f"vllm serve {base} --enable-lora --max-lora-rank {rank} \\\n"
            f"    --lora-modules {facts.policy}={repo}"
        )
    else:
        load = (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f"model = AutoModelForCausalLM.from_pretrained({quoted})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({quoted})\n"
        )
        serve = f"vllm serve {repo}"
    if facts.is_adapter and (given := _template_kwargs(facts)):
        serve += f" \\\n    --default-chat-template-kwargs '{json.dumps(given)}'"
    title = "PEFT" if facts.is_adapter else "Transformers"
    return (
        f"With {title}:\n\n```python\n{load}\n{chat}\n```\n\n"
        f"With vLLM, as an OpenAI-compatible server:\n\n```bash\n{serve}\n```\n\n"
        f"Training sampled with temperature {_temperature(facts):g}."
    )


def _prompt(facts: RunFacts) -> str:
    """A recorded prompt, since a policy expects the observations of its environment."""
    messages = json.dumps(list(map(_message, facts.example)), indent=2, ensure_ascii=False)
    return (
        "The policy expects the observations of its environment. One of the run:\n\n"
        f"{fenced(messages, 'json')}\n\nA sampled reply:\n\n{fenced(facts.reply, 'text')}"
    )


def _training(facts: RunFacts) -> str:
    config, tokens = facts.config, facts.num_tokens
    rollout = config.rollout
    learning = config.policies[facts.policy]
    found = {
        "environment": f"`{config.env.id}`",
        "algorithm": f"`{config.algo.type}`, {rollout.type} rollouts",
        "steps": f"{facts.step} of {config.train.num_steps}",
        "tasks per step, samples per group": f"{rollout.num_tasks}, {rollout.num_samples}",
        "sampled tokens": "" if tokens is None else f"{tokens:,}",
        "training time": f"{facts.minutes:.1f} minutes" if facts.minutes else "",
        "learning rate": f"{getattr(learning, 'lr', 0):g}",
        "LoRA rank": str(getattr(learning, "rank", "")) if facts.is_adapter else "",
        "base": _base(facts),
        "seed": str(config.seed),
        "versions": ", ".join(f"{name} {number}" for name, number in facts.versions.items()),
    }
    shown = table(["", ""], [[name, value] for name, value in found.items() if value])
    command = f"```bash\npettingllms train {CONFIG}\n```"
    return (
        f"{shown}\n\n[`{CONFIG}`]({CONFIG}) has the options of the run, without folders, servers "
        f"and accounts:\n\n{command}"
    )


def _base(facts: RunFacts) -> str:
    base = facts.base
    revision = f", revision `{base.revision[:12]}`" if base.revision else ""
    return f"`{base.name or base.folder}`{revision}"


def _limits(facts: RunFacts) -> str:
    license_ = facts.base.license
    if license_:
        name = markdown(facts.base.license_name or license_)
        terms = f"The license of the base model ({name}) applies."
    else:
        terms = "The license of the base model applies; it was not found when this card was made."
    return (
        f"The policy was optimized for the rewards of `{facts.config.env.id}`. It was not "
        f"evaluated on other tasks, and other abilities of the base may have changed. {terms}"
    )


def _temperature(facts: RunFacts) -> float:
    return float(getattr(facts.config.policies[facts.policy], "temperature", 1.0))


def _template_kwargs(facts: RunFacts) -> dict[str, Any]:
    found: dict[str, Any] = getattr(facts.config.policies[facts.policy], "chat_template_kwargs", {})
    return found


def _template_arguments(facts: RunFacts) -> str:
    """Arguments of the chat template, if the policy gives any."""
    given = _template_kwargs(facts)
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f",\n    {shown}" if shown else ""


def _length(facts: RunFacts) -> int:
    return facts.config.rollout.max_reply_tokens


def _message(message: tuple[str, str]) -> dict[str, str]:
    return {"role": message[0], "content": message[1]}


def _value(score: Score, value: float) -> str:
    return f"{value:.1%}" if score.is_share else f"{value:+.3f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', ESCAPED_BAR) for cell in line)} |" for line in lines
    )


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text, which a model wrote."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{one}" if one in "\\`*_[]<>#|" else one for one in text)
