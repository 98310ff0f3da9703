import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pettingllms.config import RunConfig, load_config, parse_config
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.trackers import METRICS_FILE, Guarded, JsonLines, TensorBoard, make_trackers

VALUES = {"roles/a/reward": 0.5, "time/step": 2.0}


def run_with(**log) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "log": log,
        }
    )


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class FakeWandb:
    """Keeps what it is told, as `wandb` would."""

    def __init__(self) -> None:
        self.inits: list[dict] = []
        self.logged: list[tuple[int, dict]] = []
        self.finished = 0

    def Settings(self, **settings) -> dict:  # noqa: N802 - wandb's name
        return settings

    def init(self, **options) -> SimpleNamespace:
        self.inits.append(options)
        return SimpleNamespace(log=self._log, finish=self._finish)

    def _log(self, values: dict, step: int) -> None:
        self.logged.append((step, values))

    def _finish(self) -> None:
        self.finished += 1


class FakeMlflow:
    """Keeps what it is told, as `mlflow` would."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __getattr__(self, name: str):
        def call(*args, **options) -> SimpleNamespace:
            self.calls.append((name, args, options))
            return SimpleNamespace(info=SimpleNamespace(run_id="run-7"))

        return call

    def named(self, name: str) -> list[tuple]:
        return [(args, options) for called, args, options in self.calls if called == name]


class FakeTrackio:
    """Keeps what it is told, as `trackio` would."""

    def __init__(self) -> None:
        self.inits: list[dict] = []
        self.logged: list[tuple[int, dict]] = []
        self.finished = 0

    def init(self, **options) -> SimpleNamespace:
        print("* Trackio project initialized")
        self.inits.append(options)
        return SimpleNamespace(log=self._log, finish=self._finish)

    def _log(self, values: dict, step: int) -> None:
        self.logged.append((step, values))

    def _finish(self) -> None:
        print("* Run finished")
        self.finished += 1


class Failing:
    """Refuses the steps it is told to."""

    def __init__(self, steps: set[int], error: BaseException) -> None:
        self.steps = steps
        self.error = error
        self.asked: list[int] = []

    def log(self, step: int, values) -> None:
        self.asked.append(step)
        if step in self.steps:
            raise self.error

    def close(self) -> None:
        if -1 in self.steps:
            raise self.error


def test_a_line_is_in_the_file_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    tracker = JsonLines(tmp_path / "m.jsonl")
    for step, gap in ((1, 0.25), (2, float("nan")), (3, float("inf"))):
        tracker.log(step, {"gap": gap})
        assert lines(tmp_path / "m.jsonl")[-1]["step"] == step
    tracker.close()
    assert [line["gap"] for line in lines(tmp_path / "m.jsonl")] == [0.25, None, None]
    with pytest.raises(ValueError, match="closed file"):
        tracker.log(4, VALUES)


def test_a_run_that_goes_on_drops_the_line_that_a_crash_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for found in ('{"step": 1}\n{"step": 2, "ga', '{"step": 1}\n', '{"st', ""):
        path.write_text(found)
        tracker = JsonLines(path)
        tracker.log(9, {})
        tracker.close()
        kept = [{"step": 1}] if "1}" in found else []
        assert lines(path) == [*kept, {"step": 9}]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_trackers(run_with(), tmp_path / "nowhere", print)


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = make_trackers(run_with(tensorboard=True), tmp_path, pytest.fail)
    for tracker in trackers:
        tracker.log(1, VALUES)
        tracker.log(2, {"roles/a/reward": -0.75})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(VALUES)
    found = [(event.step, event.value) for event in events.Scalars("roles/a/reward")]
    assert found == [(1, 0.5), (2, -0.75)]
    for tracker in trackers:
        tracker.close()
    assert lines(tmp_path / METRICS_FILE)[0] == {"step": 1, **VALUES}


def test_tensorboard_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pettingllms.runs.trackers import TensorBoard; "
        f"t = TensorBoard(None, Path({str(tmp_path)!r})); t.log(1, {{'a': 1.0}}); t.close(); "
        "print({'torch', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_wandb_run_goes_on_under_its_own_id(tmp_path: Path, monkeypatch) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for step in (1, 2):
        trackers = make_trackers(run_with(wandb="games"), tmp_path, pytest.fail)
        for tracker in trackers:
            tracker.log(step, VALUES)
            tracker.close()
    first, second = wandb.inits
    assert first["project"] == "games"
    assert first["name"] == tmp_path.name
    assert first["config"]["env"]["id"] == "tic_tac_toe-v1"
    assert first["settings"] == {"console": "off"}
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert wandb.logged == [(1, VALUES), (2, VALUES)]
    assert wandb.finished == 2


def test_an_mlflow_run_goes_on_under_its_own_id(tmp_path: Path, monkeypatch) -> None:
    mlflow = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    config = run_with(mlflow="games")
    for step in (1, 2):
        for tracker in make_trackers(config, tmp_path, pytest.fail):
            tracker.log(step, VALUES)
            tracker.close()
    assert mlflow.named("set_experiment") == [(("games",), {})] * 2
    assert mlflow.named("start_run") == [
        ((), {"run_name": tmp_path.name}),
        ((), {"run_id": "run-7"}),
    ]
    assert mlflow.named("log_metrics") == [((VALUES,), {"step": step}) for step in (1, 2)]
    assert len(mlflow.named("end_run")) == 2
    ((text, name), _), *others = mlflow.named("log_text")
    assert not others
    (tmp_path / name).write_text(text)
    assert load_config(tmp_path / name) == config


def test_a_trackio_run_goes_on_under_its_own_name(tmp_path: Path, monkeypatch, capsys) -> None:
    trackio = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    for step in (1, 2):
        for tracker in make_trackers(run_with(trackio="games"), tmp_path, pytest.fail):
            tracker.log(step, VALUES)
            tracker.close()
    first, second = trackio.inits
    assert first["project"] == "games"
    assert first["name"].startswith(f"{tmp_path.name}-")
    assert first["name"] == second["name"]
    assert first["resume"] == "allow"
    assert first["config"]["env"]["id"] == "tic_tac_toe-v1"
    assert trackio.logged == [(1, VALUES), (2, VALUES)]
    assert trackio.finished == 2
    assert capsys.readouterr().out == ""


def test_mlflow_is_given_names_that_it_takes(tmp_path: Path, monkeypatch) -> None:
    mlflow = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for tracker in make_trackers(run_with(mlflow="games"), tmp_path, pytest.fail):
        tracker.log(1, {"policies/p/anchor_minimax~0.3": 0.5})
        tracker.close()
    assert mlflow.named("log_metrics") == [(({"policies/p/anchor_minimax_0.3": 0.5},), {"step": 1})]


def test_trackers_that_are_not_installed_are_refused_all_at_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError) as caught:
        make_trackers(run_with(tensorboard=True, wandb="w", mlflow="m"), tmp_path, pytest.fail)
    first, second = caught.value.problems
    assert "log.wandb is set" in first
    assert first.endswith("pip install 'pettingllms[wandb]'")
    assert second.endswith("pip install 'pettingllms[mlflow]'")
    assert not list(tmp_path.iterdir())


def test_a_tracker_that_cannot_start_is_said_and_done_without(tmp_path, monkeypatch) -> None:
    wandb = FakeWandb()
    wandb.init = lambda **_: 1 / 0
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    said: list[str] = []
    trackers = make_trackers(run_with(tensorboard=True, wandb="w"), tmp_path, said.append)
    assert said == [
        "wandb failed to start (ZeroDivisionError: division by zero); the run continues without it"
    ]
    assert isinstance(trackers[0], JsonLines)
    assert len(trackers) == 2
    for tracker in trackers:
        tracker.close()


def test_after_three_failures_in_a_row_a_tracker_gets_no_more() -> None:
    said: list[str] = []
    failing = Failing({2, 3, 5, 6, 7, -1}, ConnectionError("no route"))
    guarded = Guarded(failing, "wandb", said.append)
    for step in range(1, 11):
        guarded.log(step, VALUES)
    assert failing.asked == [1, 2, 3, 4, 5, 6, 7]
    assert guarded.num_lost == 2 + 3 + 3
    (text,) = said
    assert text.startswith("wandb failed to log step 2 (ConnectionError: no route).")
    guarded.close()
    assert said[1].startswith("wandb did not close (ConnectionError: no route)")
    assert said[2] == "wandb lacks 8 steps; metrics.jsonl has them"


def test_a_tracker_that_works_says_nothing() -> None:
    guarded = Guarded(Failing(set(), OSError()), "wandb", pytest.fail)
    guarded.log(1, VALUES)
    guarded.close()


def test_no_password_is_said() -> None:
    said: list[str] = []
    failing = Failing({1}, OSError("no answer from https://me:hunter2@host/api"))
    Guarded(failing, "mlflow", said.append).log(1, VALUES)
    assert "https://***@host/api" in said[0]
    assert "hunter2" not in said[0]


def test_stopping_a_run_is_no_failure_of_a_tracker() -> None:
    with pytest.raises(KeyboardInterrupt):
        Guarded(Failing({1}, KeyboardInterrupt()), "wandb", print).log(1, VALUES)


def test_a_guard_holds_the_plugin_and_not_the_file(tmp_path: Path) -> None:
    trackers = make_trackers(run_with(tensorboard=True), tmp_path, pytest.fail)
    kinds = [type(tracker) for tracker in trackers]
    assert kinds == [JsonLines, Guarded]
    assert isinstance(trackers[1]._tracker, TensorBoard)
    for tracker in trackers:
        tracker.close()


USER_CODE = """
import json
import pettingllms as pl

class Table(pl.Tracker):
    def __init__(self, config, folder):
        self.path = folder / "table.txt"

    def log(self, step, values):
        with self.path.open("a") as file:
            file.write(f"{step} {json.dumps(values)}\\n")

class Silent(pl.Callback):
    hooks = []

    def on_train_begin(self):
        self.hooks.append("begin")

    def on_train_end(self):
        self.hooks.append("end")
"""


def test_make_trackers_loads_a_class_of_a_user_file(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text(USER_CODE)
    (tmp_path / "run.toml").write_text(
        """
        [env]
        id = "tic_tac_toe-v1"
        [algo]
        type = "grpo"
        [policies.p]
        kind = "full"
        model = "m"
        [log]
        trackers = ["table.py:Table"]
        callbacks = ["table.py:Silent"]
        """
    )
    config = load_config(tmp_path / "run.toml")
    assert config.log.trackers == [f"{tmp_path / 'table.py'}:Table"]
    for tracker in make_trackers(config, tmp_path, pytest.fail):
        tracker.log(1, VALUES)
        tracker.close()
    assert (tmp_path / "table.txt").read_text() == f"1 {json.dumps(VALUES)}\n"
    given = Callback()
    with running_callbacks(given, config.log.callbacks) as callbacks:
        first, second = callbacks.callbacks
    assert first is given
    assert second.hooks == ["begin", "end"]
    assert named_code(config.model_dump()) == [
        f"{tmp_path / 'table.py'}:{name}" for name in ("Table", "Silent")
    ]


@pytest.mark.parametrize(
    ("key", "name", "problem"),
    [
        ("trackers", "wandbb", "log.trackers: no tracker is called 'wandbb'; did you mean 'wandb'"),
        ("trackers", "toys:Relay", "log.trackers: 'toys:Relay' is no tracker"),
        ("callbacks", "toys:Relay", "log.callbacks: 'toys:Relay' is no callback"),
    ],
)
def test_trackers_and_callbacks_that_cannot_be_loaded_are_rejected(
    key: str, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_with(**{key: [name]})
    assert problem in str(caught.value)
