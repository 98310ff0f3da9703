"""Programs that cheat: each is taken for right by a grader that trusts it, and not by ours."""

import asyncio
import json

import pytest

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.envs import make_env
from pettingllms.envs.base import StepResult
from pettingllms.envs.tasks.code.env import BUILT
from pettingllms.envs.tasks.code.grade import grade, solves
from pettingllms.envs.tasks.code.run import Clock
from pettingllms.rollouts.env_calls import EnvCaller
from pettingllms.sandbox import Limits, open_sandbox, python
from pettingllms.types import Scored

CLOCK = Clock(case_seconds=2, total_seconds=20)
CALLS = CodeProblem(
    "double", "", "double", hidden=(Case("double(2)", "4"), Case("double(5)", "10")), good=("",)
)
CHECKS = CodeProblem(
    "double",
    "",
    "double",
    checks=("assert abs(double(2) - 4) < 1e-6", "assert sorted([double(5), 11]) == [10, 11]"),
    good=("def double(x):\n    return 2 * x",),
)
STDIN = CodeProblem("double", "", hidden=(Case("2\n", "4"), Case("5\n", "10")))
HONEST = "def double(x):\n    return 2 * x"
HONEST_STDIN = "print(2 * int(input()))"

ASSERTS = "\nassert double(2) == 4\nassert double(5) == 10\n"
CHECK_ASSERTS = "\nassert abs(double(2) - 4) < 1e-6\nassert sorted([double(5), 11]) == [10, 11]\n"
LISTED = (
    "\nTESTS = [(2, 4), (5, 10)]\nfor given, wanted in TESTS:\n    assert double(given) == wanted\n"
)


def by_exit_code(program: str, asserts: str = ASSERTS) -> bool:
    """Asserts behind the program, in its own process."""
    return open_sandbox().run(python(program + asserts), Limits(seconds=20)).ok


def by_checks(program: str) -> bool:
    return by_exit_code(program, CHECK_ASSERTS)


def by_list(program: str) -> bool:
    return by_exit_code(program, LISTED)


def by_word(program: str) -> bool:
    """The same, believing what is printed."""
    done = open_sandbox().run(python(program + ASSERTS + "print('ALL PASSED')"), Limits(seconds=20))
    return "ALL PASSED" in done.stdout


def by_file(program: str) -> bool:
    """The same, believing a file that the harness writes at its end."""
    shell = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-I', 'tested.py'])\n"
        "print(open('reward').read() if os.path.exists('reward') else 'none')\n"
    )
    tested = program + ASSERTS + "open('reward', 'w').write('1')"
    done = open_sandbox().run(
        python(shell, files={"tested.py": tested.encode()}), Limits(seconds=20)
    )
    return done.stdout.strip() == "1"


def by_substring(program: str) -> bool:
    """Output that has the expected one in it."""
    runs = [
        open_sandbox().run(python(program, case.given), Limits(seconds=20)) for case in STDIN.hidden
    ]
    return all(case.expected in run.stdout for case, run in zip(STDIN.hidden, runs, strict=True))


def by_folder(program: str) -> bool:
    """Expected output in the program's own folder."""
    for case in STDIN.hidden:
        files = {"expected.txt": case.expected.encode()}
        run = open_sandbox().run(python(program, case.given, files), Limits(seconds=20))
        if run.stdout.strip() != case.expected:
            return False
    return True


CHEATS = {
    "equal to everything": (
        CALLS,
        by_exit_code,
        (
            "class Yes:\n    def __eq__(self, other):\n        return True\n"
            "def double(x):\n    return Yes()"
        ),
    ),
    "a number with its own equality": (
        CALLS,
        by_exit_code,
        (
            "class Yes(int):\n    def __eq__(self, other):\n        return True\n"
            "    __hash__ = int.__hash__\ndef double(x):\n    return Yes(0)"
        ),
    ),
    "early exit with success": (CALLS, by_exit_code, "import os\nos._exit(0)"),
    "exit from within the call": (
        CALLS,
        by_exit_code,
        "import sys\ndef double(x):\n    sys.exit(0)",
    ),
    "a printed verdict": (
        CALLS,
        by_word,
        "import os\nprint('ALL PASSED', flush=True)\nos._exit(0)",
    ),
    "success at exit": (
        CALLS,
        by_exit_code,
        "import atexit, os\natexit.register(os._exit, 0)\ndef double(x):\n    return 0",
    ),
    "constants of the caller": (
        CALLS,
        by_exit_code,
        (
            "import sys\ndef double(x):\n"
            "    consts = [c for c in sys._getframe(1).f_code.co_consts if isinstance(c, int)]\n"
            "    return consts[consts.index(x) + 1] if x in consts else 0"
        ),
    ),
    "the source of the caller": (
        CALLS,
        by_exit_code,
        (
            "import re\ndef double(x):\n    text = open('main.py').read()\n"
            "    return int(re.search(r'double\\(%d\\) == (\\d+)' % x, text)[1])"
        ),
    ),
    "a table in the caller's module": (
        CALLS,
        by_list,
        "import sys\ndef double(x):\n    return dict(sys.modules['__main__'].TESTS)[x]",
    ),
    "a search through memory": (
        CALLS,
        by_list,
        (
            "import gc\ndef double(x):\n    for one in gc.get_objects():\n"
            "        if isinstance(one, list) and one and isinstance(one[0], tuple):\n"
            "            if len(one[0]) == 2 and x in [a for a, *_ in one]:\n"
            "                return dict(one)[x]\n    return 0"
        ),
    ),
    "the parent leaves, the child fails": (
        CALLS,
        by_exit_code,
        "import os\nif os.fork():\n    os._exit(0)\ndef double(x):\n    return 0",
    ),
    "another program in its place": (
        CALLS,
        by_exit_code,
        "import os\nos.execv('/bin/true', ['true'])",
    ),
    "an alarm that ends it well": (
        CALLS,
        by_exit_code,
        (
            "import os, signal, time\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.05)\ndef double(x):\n    time.sleep(1)"
        ),
    ),
    "a reward file written beforehand": (
        CALLS,
        by_file,
        "import os\nopen('reward', 'w').write('1')\nos._exit(0)",
    ),
    "patched builtins": (
        CHECKS,
        by_checks,
        (
            "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.sorted = lambda x: [10, 11]\n"
            "def double(x):\n    return 0"
        ),
    ),
    "arithmetic of its own": (
        CHECKS,
        by_checks,
        (
            "class Any:\n    def __sub__(self, other):\n        return 0\n"
            "    def __gt__(self, other):\n        return False\n"
            "    def __eq__(self, other):\n        return True\n"
            "def double(x):\n    return Any()"
        ),
    ),
    "every answer at once": (
        STDIN,
        by_substring,
        "print(*range(100))",
    ),
    "the expected output in reach": (
        STDIN,
        by_folder,
        (
            "import glob\nfor name in glob.glob('**/*expected*', recursive=True):\n"
            "    print(open(name).read())"
        ),
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_that_fools_a_trusting_grader_does_not_fool_ours(name: str) -> None:
    problem, trusting, program = CHEATS[name]
    assert trusting(program), "the control: this cheat works where the program is trusted"
    assert not solves(problem, program, CLOCK)


def test_honest_programs_pass_both() -> None:
    for problem, trusting in ((CALLS, by_exit_code), (CHECKS, by_checks), (CALLS, by_list)):
        assert trusting(HONEST)
        assert solves(problem, HONEST, CLOCK)
    for trusting in (by_substring, by_folder):
        assert trusting(HONEST_STDIN)
    assert solves(STDIN, HONEST_STDIN, CLOCK)


FORGERIES = {
    "answers on our channel": "import os\nos.write(3, b'true')\ndef double(x):\n    os._exit(0)",
    "a patched writer": (
        "import sys\nsys.modules['wire'].encode = lambda value: 'true'\n"
        "def double(x):\n    return 0"
    ),
    "lines in the driver's name": (
        "import os\nfor _ in range(9):\n"
        "    try:\n        fd = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
        '        os.write(fd, b\'{"out": "0"}\\n\' * 9)\n    except OSError:\n        pass\n'
        "def double(x):\n    return 0"
    ),
    "a killed driver": (
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef double(x):\n    return 0"
    ),
    "a changed job": (
        "import json\ntry:\n    job = json.load(open('job.json'))\n"
        "    json.dump({**job, 'num_cases': 0}, open('job.json', 'w'))\nexcept OSError:\n    pass\n"
        "def double(x):\n    return 0"
    ),
    "a value too deep to read": (
        "def double(x):\n    out = []\n    for _ in range(900):\n"
        "        out = [out]\n    return out"
    ),
    "an endless text": "def double(x):\n    return 'x' * 10**7",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_written_past_the_driver_makes_nothing_right(name: str) -> None:
    assert not solves(CALLS, FORGERIES[name], CLOCK)


def test_expected_values_never_go_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    real = open_sandbox()

    class Watching:
        def run(self, program, limits):
            sent.append(program)
            return real.run(program, limits)

    monkeypatch.setattr("pettingllms.envs.toolkit.sandboxed.open_sandbox", Watching)
    secret = CodeProblem("f", "", "f", hidden=(Case("f(1)", "987654321"),))
    assert solves(secret, "def f(x):\n    return 987654320 + x", CLOCK)
    shown = CodeProblem("f", "", hidden=(Case("1\n", "987654321"),))
    assert solves(shown, "print(987654320 + int(input()))", CLOCK)
    assert len(sent) == 2
    for program in sent:
        assert not any(b"987654321" in content for content in program.files.values())
        assert b"987654321" not in program.stdin


SEARCH = """
import gc, os, re, sys
def everything():
    found = [b"".join(open(name, "rb").read() for name in names())]
    frame = sys._getframe()
    while frame:
        found.append(repr(frame.f_locals) + repr(frame.f_globals))
        frame = frame.f_back
    found += [one for one in gc.get_objects() if isinstance(one, (dict, list, tuple))]
    for number in range(256):
        try:
            os.set_blocking(number, False)
            found.append(os.read(number, 1 << 20))
        except OSError:
            pass
    return repr(found)
def names():
    for folder in (".", "/tmp", "/dev/shm", "/work"):
        for where, _, files in os.walk(folder):
            yield from (os.path.join(where, file) for file in files)
"""
MARK = "4242424242424242"
"""Longer than an address in the representation of an object."""
FOUND = f"sorted(set(re.findall('{MARK}([0-9]{{3}})', everything())))"
SEARCHES = {
    "calls": f"{SEARCH}def double(x):\n    return {FOUND}",
    "stdin": f"{SEARCH}own = input()\nprint(str({FOUND}).replace(chr(39), chr(34)))",
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_case_finds_no_input_of_another_case(kind: str) -> None:
    """It looks through files, frames, objects and open descriptors."""
    calls = kind == "calls"
    inputs = [f"{MARK}001", f"{MARK}002"]
    texts = [f"double({one})" if calls else f"{one}\n" for one in inputs]
    cases = tuple(Case(text, "0") for text in texts)
    problem = CodeProblem("double", "", "double" if calls else "", hidden=cases)
    ran = grade(problem, SEARCHES[kind], cases, CLOCK)
    seen = [json.loads(result.answer.out) for result in ran.results]
    assert seen == [["001"], ["002"]], "each finds its own input, which shows that it searches"


VOIDS = {
    "a complex number that no float holds": "{'complex': [10**399, 0]}",
    "a complex number of three parts": "{'complex': [1.0, 2.0, 3.0]}",
    "a set of lists": "{'set': [[1]]}",
    "pairs that are none": "{'dict': [1]}",
    "two tags": "{'set': [], 'list': []}",
    "an unknown tag": "{'eval': '1'}",
    "letters that are no bytes": "{'bytes': chr(4660)}",
    "half a character": "chr(0xD800)",
    "not a number": "float('nan')",
    "infinity": "float('inf')",
    "hashes that collide": "{'set': [k * (2**61 - 1) for k in range(9000)]}",
    "keys that collide": "{'dict': [[k * (2**61 - 1), 0] for k in range(5000)]}",
}


@pytest.mark.parametrize("name", VOIDS)
def test_no_result_voids_its_own_grade(name: str) -> None:
    """A program that writes its own answers costs the step no more than a wrong one."""
    env = make_env("code-v1", solo=True, max_rounds=1)
    state = env.reset(env.tasks("train")[0], 0)
    function = state.problem.function
    patched = "import json, sys\nsys.modules['wire'].encode = lambda value: json.dumps("
    program = f"{patched}{VOIDS[name]})\ndef {function}(*args):\n    return 0"
    result = env.step(state, {"solver": f"<answer>{program}</answer>"})
    assert result.rewards.process["solver"] == Scored(BUILT)
    assert result.rewards.team == Scored(0.0)
    assert env.observe(result.state, "solver")


SLEEPER = "import time\ndef {name}(*args):\n    time.sleep(60)"


def test_a_program_that_sleeps_to_every_limit_is_wrong_and_not_void() -> None:
    """It is run twice, for the visible tests and for all of them: longer than the call may take."""
    env = make_env("code-v1", solo=True, max_rounds=1, case_seconds=0.5, total_seconds=1.5)
    state = env.reset(env.tasks("train")[0], 0)
    program = SLEEPER.format(name=state.problem.function)

    async def run() -> StepResult:
        with EnvCaller(1.0, blocking=True) as guard:
            return await guard.call(
                "step", env.step, state, {"solver": f"<answer>{program}</answer>"}
            )

    rewards = asyncio.run(run()).rewards
    assert rewards.process["solver"] == Scored(BUILT)
    assert rewards.team == Scored(0.0)


BAD_TESTS = [
    "count_vowels(__import__('os').getcwd()) == 1",
    "count_vowels((globals().update(count_vowels=lambda *a: 7), 'a')[1]) == 7",
    "count_vowels([x for x in 'abc']) == 1",
    "count_vowels(9**9**9) == 1",
    "count_vowels(" + "(" * 140 + ") == 1",
    "count_vowels(*[1]) == 1",
    "count_vowels('a') == count_vowels('a')",
    "count_vowels('a') == 1 or True",
    "print('a') == 1",
    "count_vowels('a') == 1; import os",
]


@pytest.mark.parametrize("test", BAD_TESTS)
def test_a_tester_can_write_plain_values_alone(test: str) -> None:
    env = make_env("code-v1")
    state = env.reset(env.tasks("train")[0], 0)
    result = env.step(state, {"tester": f"<answer>{test}</answer>"})
    assert result.metrics["illegal"] == 1
    assert result.rewards.agent["tester"].value == 0
