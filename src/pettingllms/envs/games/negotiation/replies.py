"""State, reply parsing and prompts of negotiation."""

from dataclasses import dataclass
from typing import Any, Literal

from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words

SELLER, BUYER = "seller", "buyer"
ROLES = (SELLER, BUYER)


@dataclass(frozen=True, slots=True)
class Said:
    """One turn: an offer with its price, or another move, and its message."""

    kind: Literal["offer", "accept", "leave", "nothing"]
    price: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class Bargain:
    """Both private values, all turns, and the price of the deal, if any."""

    cost: int
    value: int
    said: tuple[Said, ...] = ()
    ended: bool = False
    price: int | None = None


def gain(state: Bargain, role: str) -> int:
    """A role's gain from the deal; 0 without a deal."""
    if state.price is None:
        return 0
    return state.price - state.cost if role == SELLER else state.value - state.price


def offered_price(state: Bargain) -> int | None:
    """The opponent's offer, if its last turn was one."""
    if not state.said or state.said[-1].kind != "offer":
        return None
    return state.said[-1].price


def read_reply(config: Any, state: Bargain, reply: str) -> Said:
    """Parse a reply; raise BadReply with the reason if it is illegal."""
    move, colon, rest = answer_in(reply, config.terse).partition(":")
    words = checked_words(rest)
    if colon and not config.talk:
        raise BadReply("a message is not allowed here")
    match move.lower().split():
        case ["accept"]:
            if offered_price(state) is None:
                raise BadReply("there is no offer to accept")
            return Said("accept", words=words)
        case ["leave"]:
            return Said("leave", words=words)
        case ["offer", number]:
            return Said("offer", _price(config, number), words)
    raise BadReply("the answer is no offer PRICE, accept or leave")


def _price(config: Any, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) <= len(str(config.max_price))):
        raise BadReply(f"the price is no whole number from 0 to {config.max_price}")
    if int(number) > config.max_price:
        raise BadReply(f"the price is above {config.max_price}")
    return int(number)


def rules_text(config: Any, role: str) -> str:
    """The rules and the reply format, for one role."""
    if role == SELLER:
        part = "You are the seller of a lamp. It cost you a number that only you know; a deal pays"
        part += " you the price less the cost."
    else:
        part = "You are the buyer of a lamp. It is worth a number to you that only you know; a deal"
        part += " pays you that value less the price."
    always = " The value is always above the cost." if config.always_gain else ""
    waiting = ""
    if config.discount < 1:
        waiting = (
            f" With every turn that passes, a gain is worth {config.discount:g} times as much."
        )
    words = ""
    if config.talk:
        example = as_reply("offer 12: It is a fine lamp.")
        words = f" A message may follow a colon ({HOW_TO_TALK}), like {example}."
    return (
        f"{part} Without a deal both get 0.{always} Prices are whole numbers from 0 to "
        f"{config.max_price}. You speak by turns, the seller first, {config.max_turns} turns in "
        f"all.{waiting}\nOn your turn: offer PRICE, or accept the other's last offer, or leave and "
        f"end the talks.\n{HOW_TO_ANSWER} Like {as_reply('offer 12')} or {as_reply('accept')}."
        f"{words}"
    )


def story_text(config: Any, state: Bargain, role: str, asked: bool, turns_left: int) -> str:
    """The negotiation so far, and the role's legal replies."""
    own = (
        f"Your cost: {state.cost}."
        if role == SELLER
        else f"The lamp's worth to you: {state.value}."
    )
    lines = [own]
    for at, said in enumerate(state.said):
        who = "You" if ROLES[at % 2] == role else f"The {ROLES[at % 2]}"
        did = f"offer {said.price}" if said.kind == "offer" else said.kind
        lines.append(f"{who}: {did}" + (f', "{said.words}"' if said.words else ""))
    if asked:
        left = "this is the last turn" if turns_left == 1 else f"{turns_left} turns are left"
        lines.append(f"Your turn, {left}: {hint_text(config, state)}.")
    elif state.price is not None:
        lines.append(f"It is a deal at {state.price}. You gain {gain(state, role)}.")
    elif state.ended or not turns_left:
        lines.append("The talks ended without a deal.")
    else:
        lines.append("The other one speaks now.")
    return "\n".join(lines)


def terse_text(state: Bargain, role: str, turns_left: int) -> str:
    """The same in symbols: role and private value, turns left, offers with messages."""
    number = state.cost if role == SELLER else state.value
    offers = [
        (str(said.price) if said.kind == "offer" else said.kind)
        + (f" {said.words}" if said.words else "")
        for said in state.said
    ]
    return "\n".join([f"{role[0]}{number} t{turns_left}", *offers])


def hint_text(config: Any, state: Bargain) -> str:
    """Legal replies now."""
    price = offered_price(state)
    accept = "" if price is None else f"accept (at {price}), "
    return f"offer PRICE, {accept}leave"
