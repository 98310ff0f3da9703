"""Submissions to a judge, the judge's verdicts, and the turns whose rewards depend on them."""

from typing import Any

from pettingllms.types import TEAM, Episode, Failed, Scored, Step, Turn


def shown_submissions(episode: Episode) -> dict[str, dict[str, Any]]:
    """All submissions of the episode by step and role."""
    return {
        _name(at, role): {
            "role": role,
            "question": submission.question,
            "answer": submission.answer,
            "criteria": submission.criteria,
            "verdict": _verdict(step, role),
        }
        for at, step in enumerate(episode.steps)
        for role, submission in step.submissions.items()
    }


def judged_turn(episode: Episode, turn: Turn) -> list[str]:
    """Submissions whose verdicts reward a turn: those of its role and of the team. A verdict on a
    single reply rewards no earlier turn."""
    places = {id(step): at for at, step in enumerate(episode.steps)}
    return [
        _name(places[id(step)], role)
        for step in episode.reward_steps(turn)
        for role, shown in step.submissions.items()
        if role in (turn.role, TEAM)
        and (role == TEAM or shown.level == "agent" or places[id(step)] == turn.links.step)
    ]


def _name(step: int, role: str) -> str:
    return f"{step}/{role}"


def _verdict(step: Step, role: str) -> float | dict[str, str] | None:
    """A score from 0 to 1, the judge's failure, or None without a verdict."""
    level = step.submissions[role].level
    of_roles = step.rewards.process if level == "process" else step.rewards.agent
    reward = step.rewards.team if role == TEAM else of_roles.get(role)
    score = step.metrics.get(f"judged_{role}" if role else "judged")
    match reward:
        case Failed(reason, "judge"):
            return {"failed": reason, "owner": "judge"}
        case Scored() | Failed() | None:
            return score
