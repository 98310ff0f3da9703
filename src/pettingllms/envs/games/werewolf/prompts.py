"""Prompts of werewolf: the rules and the hidden role, then the events a player knows."""

from typing import Any

from pettingllms.envs.games.werewolf.rules import NO_PLAYER, Event, Village
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK

PASS = "pass"  # noqa: S105 - a word of the game
PARTS = {
    "wolf": "You are a WOLF. At night you and your pack choose whom to kill. By day you must not "
    "be found out.",
    "seer": "You are the SEER. Each night you look at one player and learn whether it is a wolf.",
    "villager": "You are a VILLAGER. You have your eyes and your vote.",
}


def called(name: int) -> str:
    """A player's name in prompts and replies."""
    return "nobody" if name == NO_PLAYER else f"player_{name}"


def rules_text(config: Any, village: Village, position: int) -> str:
    """The rules, and the player's hidden role."""
    everyone = ", ".join(called(name) for name in sorted(village.names))
    wolves = "one is a wolf" if village.num_wolves == 1 else f"{village.num_wolves} are wolves"
    pack = [called(village.names[w]) for w in range(village.num_wolves) if w != position]
    mates = f" The other wolf is {pack[0]}." if pack and position < village.num_wolves else ""
    talk = ""
    if config.num_talks:
        talk = f" in turn each speaks to all ({HOW_TO_TALK}), or says {PASS}; then"
    return (
        f"You are {called(village.names[position])} in a game of werewolf with {everyone}. Of them "
        f"{wolves}, one is the seer, the others are villagers. At night the wolves choose one to "
        f"kill, and the seer looks at one. By day{talk} all who live vote at the same time, and "
        "whoever is named most often is hanged; with a tie nobody is. The dead show what they "
        "were. The village wins when no wolf lives; the wolves win when they are half of the "
        f"living, or after day {config.max_days}.\n{PARTS[village.part(position)]}{mates}\n"
        f"{HOW_TO_ANSWER} Like {as_reply(called(1))}."
    )


def story_text(village: Village, position: int, asked: bool) -> str:
    """All events that the player knows, and the question to it."""
    lines = [
        _event_text(village, event, position) for event in village.events if _knows(event, position)
    ]
    if village.winner is not None:
        parts = (f"{called(n)}: {village.part(s)}" for s, n in enumerate(village.names))
        lines += [f"The game is over: {village.winner} won.", ", ".join(parts)]
        return "\n".join(lines)
    living = ", ".join(called(village.names[other]) for other in village.living())
    lines.append(f"Day {village.day}, {village.phase}. Alive: {living}.")
    lines.append(_question(village, position) if asked else "You wait.")
    return "\n".join(lines)


def terse_text(village: Village, position: int) -> str:
    """The same in symbols: role and name, events, then phase and living players."""
    living = "".join(str(village.names[other]) for other in village.living())
    pack = "".join(str(village.names[w]) for w in range(village.num_wolves))
    mates = f" w{pack}" if position < village.num_wolves > 1 else ""
    own = f"{village.part(position)[0]}{village.names[position]}{mates}"
    lines = [
        f"{event.kind[0]}{event.who}{event.target or ''} {event.words}".rstrip()
        for event in village.events
        if _knows(event, position)
    ]
    return "\n".join([own, *lines, f"{village.phase} {living}"])


def _knows(event: Event, position: int) -> bool:
    return event.known_to is None or position in event.known_to


def _event_text(village: Village, event: Event, position: int) -> str:
    own = village.names[position] == event.who
    who, was = ("you", "were") if own else (called(event.who), "was")
    match event.kind:
        case "kill":
            text = f"{who} chose to kill {called(event.target)}"
        case "look":
            text = f"{who} looked at {called(event.target)}"
        case "found":
            text = f"{who} is {event.words}"
        case "died":
            text = f"{who} {was} killed, a {event.words}" if event.who else "nobody was killed"
        case "hanged":
            text = f"{who} {was} hanged, a {event.words}" if event.who else "nobody was hanged"
        case "said":
            text = f'{who} said "{event.words}"' if event.words else f"{who} said nothing"
        case "vote":
            text = f"{who} voted for {called(event.target)}"
    when = "Night" if event.kind in ("kill", "look", "found", "died") else "Day"
    return f"{when} {event.day}: {text}."


def _question(village: Village, position: int) -> str:
    if village.phase == "talk":
        return f"Your message to all, or {PASS}?"
    names = ", ".join(map(called, (*village.choices(position), NO_PLAYER)))
    if village.phase == "vote":
        return f"Whom do you vote to hang: {names}?"
    doing = "kill" if position < village.num_wolves else "look at"
    return f"Whom do you {doing}: {names}?"
