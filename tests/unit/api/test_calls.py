"""Runs from Python: trained over fakes, rolled out for real, in and out of a running event loop."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from fakes import FakeRun, Watched, faked

import pettingllms as pl
from pettingllms.errors import ConfigError, UnknownNameError
from pettingllms.training import train as loop

ROWS = [{"prompt": f"{at} + 0 = ?", "answer": str(at)} for at in range(10)]


def exact(reply: str, answer: str) -> float:
    return float(reply == answer)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRun]:
    """Engines and learners whose weights are one number; replies are digits by chance."""
    run = FakeRun(Watched())
    monkeypatch.setattr(loop, "check_models", lambda *_: None)
    monkeypatch.setattr(loop, "ray_running", lambda _: nullcontext())
    with faked(
        run, lambda request, number, _: str(random.Random(request.seed + number).randrange(9))
    ):
        yield run


def train_sums(out: Path, **options: Any) -> pl.Run:
    options = {"num_steps": 2, "callbacks": [], "out": out, **options}
    env = pl.single_turn(ROWS, exact)
    return pl.train(model="m", env=env, rollout={"num_tasks": 2, "num_samples": 3}, **options)


def test_a_dataset_and_a_reward_function_train_a_policy(fakes: FakeRun, tmp_path: Path) -> None:
    heard = Watched()
    run = train_sums(tmp_path / "run", callbacks=[heard])
    assert fakes.trained == [(1, "policy"), (2, "policy")]
    assert list(heard.metrics) == [1, 2]
    assert f"run folder: {run.path}" in heard.said
    assert run.config.train.num_steps == 2
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert "roles/assistant/reward" in run.metrics()[0]
    assert len(list(run.episodes())) == 12
    assert {one.env for one in run.episodes(step=2)} == {"single_turn-v1"}
    assert list(run.checkpoints()) == [2]
    with pytest.raises(ConfigError, match="no episodes of step 3"):
        list(run.episodes(step=3))


def test_progress_is_printed_unless_callbacks_are_given(
    fakes: FakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_sums(tmp_path / "one", callbacks=None)
    printed = capsys.readouterr().out
    assert "step 2  assistant reward +" in printed
    train_sums(tmp_path / "two", callbacks=[])
    assert capsys.readouterr().out == ""


def test_a_run_is_resumed_from_its_folder(fakes: FakeRun, tmp_path: Path) -> None:
    run = train_sums(tmp_path / "run", train={"save_every": 1})
    assert pl.Run(tmp_path / "run").resume(step=1, callbacks=[]).path == run.path
    assert fakes.trained == [(1, "policy"), (2, "policy"), (2, "policy")]
    assert [row["step"] for row in run.metrics()] == [1, 2]


def test_a_run_of_another_process_needs_its_environment_again(
    fakes: FakeRun, tmp_path: Path
) -> None:
    run = train_sums(tmp_path / "run", train={"save_every": 1})
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace(run.config.env.id, "session:of_yesterday"))
    with pytest.raises((ConfigError, UnknownNameError), match=r"resume\(env=\.\.\.\)"):
        pl.Run(run.path).resume(step=1, callbacks=[])
    assert list(run.checkpoints()) == [1, 2], "a resume that fails removes nothing"
    pl.Run(run.path).resume(step=1, env=pl.single_turn(ROWS, exact), callbacks=[])
    assert fakes.trained[-1] == (2, "policy")


def test_training_works_where_an_event_loop_is_running(fakes: FakeRun, tmp_path: Path) -> None:
    async def cell() -> tuple[pl.Run, threading.Thread]:
        threads: list[threading.Thread] = []

        class Where(pl.Callback):
            def on_step_end(self, step: int, metrics: Any) -> None:
                threads.append(threading.current_thread())

        return train_sums(tmp_path / "run", callbacks=[Where()]), threads[0]

    run, thread = asyncio.run(cell())
    assert len(run.metrics()) == 2
    assert thread is not threading.main_thread()


def test_an_error_reaches_a_caller_with_a_running_loop(tmp_path: Path) -> None:
    async def cell() -> None:
        pl.rollout(model="m", env=pl.single_turn(ROWS, exact), player="no", out=tmp_path / "run")

    with pytest.raises(UnknownNameError, match="no player called 'no'"):
        asyncio.run(cell())


def test_ctrl_c_in_a_notebook_saves_the_run_and_stops(fakes: FakeRun, tmp_path: Path) -> None:
    class Interrupting(Watched):
        def on_step_end(self, step: int, metrics: Any) -> None:
            super().on_step_end(step, metrics)
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)

    heard = Interrupting()

    async def cell() -> pl.Run:
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return train_sums(tmp_path / "run", num_steps=500, callbacks=[heard])
        finally:
            signal.signal(signal.SIGINT, previous)

    run = asyncio.run(cell())
    (last,) = run.checkpoints()
    assert 2 <= last < 500
    assert any("saving the run first" in text for text in heard.said)


def test_rollouts_need_no_engine_and_credit_their_episodes(tmp_path: Path) -> None:
    run = pl.rollout(
        model="any",
        env=pl.single_turn(ROWS, exact),
        player="reference",
        rollout={"num_tasks": 3, "num_samples": 2},
        out=tmp_path / "run",
    )
    episodes = list(run.episodes())
    assert len(episodes) == 6
    assert all(one.success["assistant"] for one in episodes)
    assert all(turn.credit.advantage == 0 for one in episodes for turn in one.turns)
    with pytest.raises(ConfigError, match="already holds episodes"):
        pl.rollout(model="any", env="tic_tac_toe-v1", out=tmp_path / "run")


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':\n    ", ""])
def test_a_class_of_a_script_is_resumed_by_the_name_of_its_file(guard: str, tmp_path: Path) -> None:
    script, out = tmp_path / "mine.py", str(tmp_path / "run")
    script.write_text(
        "import pettingllms as pl\n"
        "from toys import Relay\n\n"
        "class Mine(Relay):\n    id = 'mine-v1'\n\n"
        f"{guard}print(pl.rollout(model='m', env=Mine, out={out!r}, callbacks=[]).config.env.id)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == f"{script}:Mine"
    if guard:
        assert pl.Run(out).config.env.id == f"{script}:Mine"
    else:
        with pytest.raises(ConfigError, match=r"(?s)while it is loaded.*__main__"):
            pl.Run(out).config  # noqa: B018


def test_a_tournament_rates_scripted_players() -> None:
    found = pl.tournament("tic_tac_toe-v1", ["minimax", "random"], num_rounds=10, callbacks=[])
    assert next(iter(found.rows()))["player"] == "minimax"


def test_check_reports_what_a_run_lacks(tmp_path: Path) -> None:
    found = pl.check(model="no/such-model", env="tic_tac_toe-v1", out=tmp_path)
    assert any(one.level == "problem" and "no/such-model" in one.what for one in found)


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        pl.Run(tmp_path)


def test_a_line_that_is_still_being_written_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1}) + '\n{"step": ')
    assert pl.Run(tmp_path).metrics() == [{"step": 1}]


def test_rollout_is_a_call_and_a_package() -> None:
    import pettingllms.rollouts
    import pettingllms.rollouts.env_calls as env_calls

    assert callable(pl.rollout)
    assert pettingllms.rollouts.env_calls is env_calls
