"""Judging of negotiations by fairness and coherence.

The surplus reward alone favors a role that takes everything and ignores what messages mean.
Fairness measures how evenly a deal divides the surplus. Coherence measures whether offers are
monotone, stay within the role's limit, and agree with the messages.
"""

import re

from pettingllms.envs.games.negotiation.replies import ROLES, SELLER, Bargain, Said, gain
from pettingllms.types import Submission

CRITERIA = (
    "Look at two things: fairness, whether a deal leaves both about as much, or nothing was lost "
    "where there was nothing to share; and coherence, whether each one's offers and words fit "
    "together and answer the other."
)
NUMBER = re.compile(r"[0-9]+")


def submission_of(state: Bargain) -> Submission:
    """A finished negotiation as a submission to a judge."""
    question = (
        f"A seller, whom a lamp cost {state.cost}, and a buyer, to whom it is worth {state.value}, "
        "talk about its price. Neither knows the other's number."
    )
    lines = []
    for at, said in enumerate(state.said):
        did = f"offer {said.price}" if said.kind == "offer" else said.kind
        lines.append(f"{ROLES[at % 2]}: {did}" + (f', "{said.words}"' if said.words else ""))
    end = "No deal." if state.price is None else f"Deal at {state.price}."
    turns = [[said.kind, said.price, said.words] for said in state.said]
    facts = {"cost": state.cost, "value": state.value, "price": state.price, "said": turns}
    return Submission(question, "\n".join([*lines, end]), CRITERIA, facts)


def parts_of(submission: Submission) -> dict[str, float]:
    """Fairness and coherence, from 0 to 1."""
    facts = submission.facts
    said = tuple(Said(kind, price, words) for kind, price, words in facts["said"])
    state = Bargain(facts["cost"], facts["value"], said, price=facts["price"])
    return {"fairness": _fairness(state), "coherence": _coherence(state)}


def _fairness(state: Bargain) -> float:
    surplus = state.value - state.cost
    gains = [gain(state, role) for role in ROLES]
    if state.price is None:
        return float(surplus <= 0)
    if surplus <= 0 or min(gains) < 0:
        return 0.0
    return 1 - abs(gains[0] - gains[1]) / surplus


def _coherence(state: Bargain) -> float:
    """Fraction of turns that are consistent with the role's earlier turns."""
    coherent = [_is_coherent(state, at) for at in range(len(state.said))]
    return sum(coherent) / len(coherent) if coherent else 0.0


def _is_coherent(state: Bargain, at: int) -> bool:
    said, role = state.said[at], ROLES[at % 2]
    if said.kind != "offer":
        return said.kind != "nothing"
    before = [s.price for s in state.said[at % 2 : at : 2] if s.kind == "offer"]
    named = [int(number) for number in NUMBER.findall(said.words)]
    if any(number != said.price for number in named):
        return False
    if role == SELLER:
        return said.price >= state.cost and all(said.price <= price for price in before)
    return said.price <= state.value and all(said.price >= price for price in before)
