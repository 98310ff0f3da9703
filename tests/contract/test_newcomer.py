"""Questions of a newcomer, each with the page and section that answers it."""

import re
from pathlib import Path

import pytest

from pettingllms.config.renames import KEYS

DOCS = Path(__file__).parents[2] / "docs"
QUESTIONS = [
    # question, page, section, phrase of the answer
    ("How do I install it without a GPU?", "getting_started", "install", "scripts/install_cpu.sh"),
    (
        "How do I train on my dataset with a reward function?",
        "getting_started",
        "your-data-and-reward-function",
        "pl.single_turn(rows, reward)",
    ),
    ("How do I export a trained adapter?", "getting_started", "evaluate-and-export", "--policy"),
    (
        "How do I give each role its own LoRA adapter?",
        "guides/team_policies",
        "a-team-of-two-adapters",
        'kind = "lora"',
    ),
    (
        "How do I train two models on one GPU?",
        "guides/troubleshooting",
        "how-do-i-train-two-models-on-one-gpu",
        "colocated",
    ),
    (
        "How do I train one role and keep the others fixed?",
        "guides/team_policies",
        "kinds-of-policies",
        "To train one role only",
    ),
    ("How do I add a loss?", "guides/losses", "write-a-loss", "class Cispo(Loss)"),
    ("How do I add an algorithm?", "guides/write_algorithm", "", "class BestOnly(pl.Algorithm)"),
    ("How do I write an environment?", "guides/environments", "", "class Guess(pl.Environment)"),
    (
        "What does mismatch mean?",
        "guides/troubleshooting",
        "what-does-mismatch-mean",
        "log-probs of the sampler and of the learner",
    ),
    (
        "Why is nothing learned although nothing fails?",
        "guides/troubleshooting",
        "all-rewards-are-equal-and-nothing-is-learned",
        "zero_share",
    ),
    ("Which algorithm should I use?", "guides/algorithms", "which-one", "at_grpo"),
    ("What is a centralized critic here?", "concepts/glossary", "rewards-and-credit", "CTDE"),
    (
        "How do I set a KL penalty, and what is the reference model?",
        "guides/losses",
        "kl-penalty-and-entropy-bonus",
        "loss.kl_coef",
    ),
    ("How do I resume a run?", "guides/training_runs", "resume", "latest complete checkpoint"),
    (
        "How do I train my LangGraph agents?",
        "guides/agent_programs",
        "from-a-langgraph-program-to-a-trained-adapter",
        "pl.Workflow",
    ),
    ("How do I use an LLM as a judge?", "guides/judges", "kinds-of-judges", "`llm`"),
    ("How do I train by self-play with a league?", "guides/self_play", "", "snapshot_every"),
    (
        "How far is my policy from a Nash equilibrium?",
        "guides/self_play",
        "exploitability",
        "NashConv",
    ),
    (
        "Which policy learns from which turn at L1, L2, L3?",
        "concepts/levels",
        "what-each-level-shares",
        "learns from the turns that it sampled",
    ),
    ("How many GPUs does my config need?", "guides/gpus", "settings", "num_replicas"),
    ("How do I train a VLM role?", "guides/vlm", "show-images-to-a-role", "image_roles"),
    ("Is it safe to run generated code?", "guides/sandbox", "what-is-isolated", "network"),
    (
        "Is my team better than one agent with the same tokens?",
        "guides/evaluation",
        "team-against-single-agent-at-equal-tokens",
        "same token budget",
    ),
    ("I know verl. What is rollout.n here?", "guides/coming_from", "verl", "rollout.num_samples"),
    (
        "How do I add an inference engine?",
        "contributing",
        "add-an-inference-engine",
        "publish_adapter",
    ),
    ("How do I add a tracker?", "contributing", "add-a-tracker", "class PrintReward(pl.Tracker)"),
    ("How do I add a callback?", "contributing", "add-a-callback", "class StopWatch(pl.Callback)"),
    (
        "My run stopped because of mismatch. What now?",
        "guides/troubleshooting",
        "the-run-stopped-because-sampler-and-learner-differ",
        "`pettingllms resume RUN`",
    ),
    (
        "How do I see advantages?",
        "guides/troubleshooting",
        "how-do-i-see-advantages",
        "turn.credit.advantage",
    ),
    (
        "How do I evaluate against a scripted player?",
        "guides/evaluation",
        "against-a-scripted-player",
        'others = "minimax"',
    ),
    (
        "How do I pin a model revision?",
        "guides/troubleshooting",
        "how-do-i-pin-a-model-revision",
        "NAME@REVISION",
    ),
    ("What was train.start of 0.1 renamed to?", "guides/coming_from", "version-01", "init_from"),
    ("What happens to an episode that is cut?", "concepts/rollouts", "limits", "limit reward"),
]


def sections(page: str) -> dict[str, str]:
    """The text under each heading of a page, by its anchor; the whole page under ''."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    plain = re.sub(r"(?ms)^```.*?^```", lambda block: re.sub(r"(?m)^#", " #", block[0]), text)
    parts = re.split(r"(?m)^#+ (.+)$", plain)[1:]
    found = {anchor_of(title): body for title, body in zip(parts[::2], parts[1::2], strict=True)}
    return {**found, "": text}


def anchor_of(title: str) -> str:
    """The anchor that MkDocs makes of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


@pytest.mark.parametrize(("question", "page", "anchor", "phrase"), QUESTIONS)
def test_question_is_answered(question: str, page: str, anchor: str, phrase: str) -> None:
    found = sections(page)
    assert anchor in found, f"{question} {page}.md has the sections {', '.join(found)}"
    assert " ".join(phrase.split()) in " ".join(found[anchor].split()), question


def test_there_are_twenty_questions_over_many_pages() -> None:
    assert len(QUESTIONS) >= 20
    assert len({page for _, page, *_ in QUESTIONS}) >= 12


def test_every_new_key_of_a_rename_is_listed() -> None:
    section = sections("guides/coming_from")["version-01"]
    names = [new.removeprefix("policies.*.") for new in KEYS.values()]
    assert [name for name in names if name not in section] == []
