"""Stories, debugging, reports and judged negotiations: what rules score, and attempts to fool
them."""

import random
import time
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.games.negotiation.judging import parts_of as talk_parts
from pettingllms.envs.games.negotiation.judging import submission_of
from pettingllms.envs.games.negotiation.replies import Bargain, Said
from pettingllms.envs.tasks.debugging.planting import changed_line, mutants
from pettingllms.envs.tasks.knowledge.topics import Fact, Line, parts_of, read_report
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.types import TEAM, Failed, Scored, Submission


def played(env: Any, player: str, at: int = 0) -> tuple[Any, Any]:
    """The last state and the last step of a scripted play."""
    state, rng = env.reset(env.tasks("train")[at], 0), random.Random(1)
    result = None
    while roles := env.acting(state):
        result = env.step(state, {r: env.player(player)(env, state, r, rng) for r in roles})
        state = result.state
    return state, result


def mean_of(env: Any, player: str, role: str = TEAM) -> float:
    found = [env.rule(played(env, player, at)[1].submissions[role]).value for at in range(5)]
    return sum(found) / len(found)


def test_the_rule_tells_a_story_from_filling_and_from_contradiction() -> None:
    env = make_env("story-v1")
    author, hollow, contrary = (mean_of(env, p) for p in ("author", "hollow", "contrary"))
    assert author > 0.85
    assert hollow < 0.15
    assert contrary < 0.05
    assert env.success(played(env, "author")[0], "writer_1")
    assert not env.success(played(env, "hollow")[0], "writer_1")


@pytest.mark.parametrize("text", ["", "Thought process:", "...", "a", "word " * 400, "\n" * 40])
def test_hollow_stories_score_low(text: str) -> None:
    env = make_env("story-v1")
    good = played(env, "author")[1].submissions[TEAM]
    fake = Submission(good.question, text, good.criteria, good.facts)
    assert env.rule(fake).value < 0.3
    assert env.rule(good).value > 0.8


def test_a_story_longer_than_asked_scores_no_more() -> None:
    env = make_env("story-v1", num_rounds=1)
    good = played(env, "author")[1].submissions[TEAM]
    long = Submission(good.question, "\n".join([good.answer] * 30), "", good.facts)
    for part in ("", *env.rule_parts):
        assert 0 <= env.rule(long, part).value <= 1


def test_rivals_do_not_see_each_other_and_are_shown_apart() -> None:
    env = make_env("story-v1", rivals=True, num_rounds=2)
    state, result = played(env, "random")
    assert set(result.submissions) == {"writer_1", "writer_2"}
    first, second = (result.submissions[role].answer for role in env.roles)
    seen = env.observe(state, "writer_1")[-1].content
    assert first in seen
    assert second.split("\n")[0] not in seen or first == second


def test_a_part_that_is_none_fails() -> None:
    env = make_env("story-v1")
    found = env.rule(played(env, "author")[1].submissions[TEAM], "plot")
    assert isinstance(found, Failed)


def test_one_line_is_changed_or_it_is_no_plant() -> None:
    program = "def f(x):\n    y = x + 1\n    return y"
    assert changed_line(program, program) is None
    assert changed_line(program, program.replace("+", "-")) == 2
    assert changed_line(program, "def f(x):\n    return y") == 2
    assert changed_line(program, program + "\n    # more") == 4
    with pytest.raises(BadReply, match="more than one line"):
        changed_line(program, "def f(x):\n    y = x - 1\n    return x")
    assert all(changed_line(program, mutant) in (2, 3) for mutant in mutants(program))


def test_a_planted_bug_is_what_tests_say_and_mending_wins() -> None:
    env = make_env("debugging-v1")
    state, result = played(env, "right")
    assert state.line is not None
    assert state.works
    earned = result.rewards.agent
    assert (earned["planter"], earned["mender"]) == (Scored(0.0), Scored(1.0))
    assert env.success(state, "mender")
    assert not env.success(state, "planter")
    assert env.rule(result.submissions["mender"]) == Scored(1.0)
    assert env.rule(result.submissions["planter"], "planted") == Scored(1.0)


def test_a_harmless_edit_earns_its_planter_nothing_and_the_mender_is_still_asked() -> None:
    env = make_env("debugging-v1")
    start = env.reset(env.tasks("train")[0], 0)
    harmless = start.original + "\n# a comment"
    for reply in (start.original, harmless):
        state = env.step(start, {"planter": env.reply_of(reply)}).state
        assert state.line is None
        assert state.planted == start.problem.bad[0]
        for _ in range(2):
            result = env.step(state, {"mender": env.reply_of(state.planted)})
            state = result.state
        assert result.rewards.agent == {"planter": Scored(0.0), "mender": Scored(0.0)}


def test_a_program_that_cannot_be_run_any_more_is_no_plant() -> None:
    env = make_env("debugging-v1")
    start = env.reset(env.tasks("train")[0], 0)
    first, _, rest = start.original.partition("\n")
    for broken in (f"{first}(\n{rest}", f"{first.replace('def ', 'def no_')}\n{rest}"):
        result = env.step(start, {"planter": env.reply_of(broken)})
        assert result.metrics["illegal"] == 1
        assert result.rewards.process["planter"] == Scored(env.config.illegal_reward)
        assert result.state.line is None
        assert result.state.planted == start.problem.bad[0]
        repaired = env.step(result.state, {"mender": env.reply_of(broken)}).state
        assert not repaired.works
        assert "cannot be run" in env.observe(repaired, "mender")[-1].content


def test_a_bug_that_stays_rewards_its_planter_and_the_right_line_earns_a_part() -> None:
    env = make_env("debugging-v1", max_tries=1)
    start = env.reset(env.tasks("train")[0], 0)
    planted = env.player("right")(env, start, "planter", random.Random(1))
    state = env.step(start, {"planter": planted}).state
    kept = env.step(state, {"mender": env.reply_of(state.planted)})
    assert kept.rewards.agent == {"planter": Scored(1.0), "mender": Scored(0.0)}
    lines = state.planted.split("\n")
    lines[state.line - 1] += "  # here?"
    near = env.step(state, {"mender": env.reply_of("\n".join(lines))})
    assert near.rewards.agent["mender"] == Scored(0.3)


def test_citations_are_checked_exactly() -> None:
    asked = [Fact("Ada Moss", "born", "Alanda"), Fact("Alanda", "river", "Keliton")]
    articles = {
        "Ada Moss": "Ada Moss was born in Alanda.",
        "Alanda": "The river Keliton flows through Alanda.",
    }
    good = [
        Line("Ada Moss was born in Alanda.", "Ada Moss"),
        Line("Its river is Keliton.", "Alanda"),
    ]
    assert parts_of(asked, articles, good) == {"coverage": 1, "citations": 1, "relevance": 1}
    cases = {
        "not found": Line("Ada Moss was born in Alanda.", "Ada"),
        "other article": Line("Its river is Keliton.", "Ada Moss"),
        "not told there": Line("Ada Moss was born in Helanda.", "Ada Moss"),
    }
    for line in cases.values():
        found = parts_of(asked, articles, [line])
        assert found["coverage"] == 0
        assert found["citations"] == 0
    unseen = parts_of(asked, {}, good)
    assert (unseen["coverage"], unseen["citations"]) == (0, 0)


def test_the_librarian_succeeds_and_the_inventor_does_not() -> None:
    env = make_env("knowledge-v1")
    for at in range(5):
        state, result = played(env, "librarian", at)
        assert env.success(state, "writer")
        assert result.rewards.team == Scored(1.0)
        state, result = played(env, "inventor", at)
        assert not env.success(state, "writer")
        assert result.rewards.team == Scored(0.0)
        assert env.rule(result.submissions[TEAM]).value == 0


def copied(article: tuple[str, str]) -> list[str]:
    """An article in as few lines as it fits in."""
    title, text = article
    return [f"{text[:160].replace('.', ' ')} [{title}]"]


def split_up(article: tuple[str, str]) -> list[str]:
    """An article with a line for each of its sentences."""
    title, text = article
    return [f"{sentence}. [{title}]" for sentence in text.strip(".").split(". ")[1:]]


@pytest.mark.parametrize("copy", [copied, split_up])
def test_a_copy_of_what_was_found_does_not_pay(copy: Any) -> None:
    env, earned = make_env("knowledge-v1"), []
    for at in range(20):
        state, rng = env.reset(env.tasks("train")[at], 0), random.Random(1)
        while env.acting(state) == ("finder",):
            state = env.step(
                state, {"finder": env.player("librarian")(env, state, "finder", rng)}
            ).state
        lines = [line for article in state.articles for line in copy(article)]
        result = env.step(state, {"writer": env.reply_of("\n".join(lines[:8]))})
        assert result.metrics["illegal"] == 0
        earned.append(result.rewards.team.value)
    assert sum(earned) / len(earned) < 0.5


def test_a_line_states_one_fact_and_unrequested_facts_cost() -> None:
    asked = [Fact("Alanda", "river", "Keliton")]
    text = "Alanda is a city. The river Keliton flows through Alanda. Alanda lies in Isfen."
    river, land = "The river is Keliton.", "Alanda lies in Isfen."
    both = Line("The river is Keliton and the country Isfen.", "Alanda")
    found = parts_of(asked, {"Alanda": text}, [both])
    assert found == {"coverage": 0, "citations": 1, "relevance": 0}
    lines = [Line(river, "Alanda"), Line(land, "Alanda")]
    found = parts_of(asked, {"Alanda": text}, lines)
    assert found == {"coverage": 1, "citations": 1, "relevance": 0.5}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It is so. [Ada Moss]", [Line("It is so.", "Ada Moss")]),
        ("  It is so [Ada Moss].\n\n", [Line("It is so", "Ada Moss")]),
        ("a" + " " * 30_000 + "b", None),
        ("a " * 100_000 + "[", None),
        ("[Ada Moss]", None),
        ("It is so. []", None),
        ("It is so. [Ada", None),
        ("It [is] so. [Ada]", None),
        ("It is so. [Ada]] ", None),
        ("It is so. [Ada] more", None),
    ],
)
def test_reports_are_read_line_by_line_and_in_no_long_time(
    text: str, lines: list[Line] | None
) -> None:
    start = time.process_time()
    if lines is None:
        with pytest.raises(BadReply):
            read_report(text, 8)
    else:
        assert read_report(text, 8) == tuple(lines)
    assert time.process_time() - start < 1


def test_topics_never_ask_for_the_same_twice_and_need_what_they_say() -> None:
    env = make_env("knowledge-v1", num_facts=6)
    for task in env.tasks("train")[:50]:
        facts = env.reset(task, 0).topic.facts
        assert len(facts) == 6
        assert len({(f.subject, f.relation) for f in facts}) == 6


def talks(price: int | None, *said: Said) -> dict[str, float]:
    return talk_parts(submission_of(Bargain(4, 12, said, price=price)))


def test_fairness_is_how_a_deal_divides_what_there_was() -> None:
    assert talks(8)["fairness"] == 1
    assert talks(12)["fairness"] == 0
    assert talks(10)["fairness"] == pytest.approx(0.5)
    assert talks(2)["fairness"] == 0
    assert talks(None)["fairness"] == 0
    nothing_to_share = talk_parts(submission_of(Bargain(12, 4)))
    assert nothing_to_share["fairness"] == 1


def test_coherence_counts_turns_that_fit_those_before() -> None:
    fits = (Said("offer", 10), Said("offer", 6), Said("offer", 8, "I go down to 8"), Said("accept"))
    assert talks(8, *fits)["coherence"] == 1
    assert talks(8, Said("offer", 8), Said("offer", 6), Said("offer", 10))["coherence"] == 2 / 3
    assert talks(None, Said("offer", 8, "take it for 5"))["coherence"] == 0
    assert talks(None, Said("offer", 2))["coherence"] == 0
    assert talks(None, Said("nothing"), Said("leave"))["coherence"] == 0.5
