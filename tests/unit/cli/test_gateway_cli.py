"""`pettingllms gateway` serves a program, shows what its roles say, and leaves a record."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from servers import serving
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError
from pettingllms.evaluation.players import ServerOptions
from pettingllms.types import read_episodes

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


def test_it_records_and_counts_by_role(tmp_path: Path) -> None:
    with serving(lambda body: f"heard {body['messages'][-1]['content']}") as upstream:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "pettingllms", "gateway",
                "--role", f"planner={upstream.url}#tiny/model", "--role", f"worker={upstream.url}",
                "--rule", "worker:system=You work", "--price", "planner=1,2",
                "--out", str(tmp_path / "seen"),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "COLUMNS": "68"},
        )  # fmt: skip
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Press Ctrl-C"):
                break
        url = re.findall(r"OPENAI_BASE_URL=(\S+)", said)[0]
        key = re.findall(r"OPENAI_API_KEY=(\S+)", said)[0]
        for model, system in (("planner", "x"), ("any", "You work")):
            chat = [{"role": "system", "content": system}, {"role": "user", "content": "hello"}]
            request = urllib.request.Request(  # noqa: S310 - a test's own server
                f"{url}/chat/completions",
                json.dumps({"model": model, "messages": chat}).encode(),
                {"authorization": f"Bearer {key}"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
                assert json.load(answer)["choices"][0]["message"]["content"] == "heard hello"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "heard hello" in rest
    assert re.search(r"planner\W+1\W+0", rest)
    assert key not in rest
    (episode,) = read_episodes(tmp_path / "seen" / "episodes.jsonl")
    assert [turn.role for turn in episode.turns] == ["planner", "worker"]


TWO_SERVERS = ["--role", "a=https://one.example/v1#m", "--role", "b=https://two.example/v1#m"]


def test_a_key_goes_to_the_server_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def stop(wishes: object, servers: object, options: ServerOptions) -> None:
        found.update(options.keys)
        raise ConfigError("stop", [])

    monkeypatch.setattr("pettingllms.cli.gateway._players", stop)
    CliRunner().invoke(app, ["gateway", *TWO_SERVERS, "--key", "https://two.example/v1=K"])
    assert found == {"https://two.example/v1": "K"}
    found.clear()
    CliRunner().invoke(app, ["gateway", *TWO_SERVERS[:2], "--key", "K"])
    assert found == {"https://one.example/v1": "K"}


def test_wrong_options_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any player is opened, which takes an engine its time."""
    monkeypatch.setattr("pettingllms.cli.gateway._players", None)
    for words, problem in (
        ([], "no --role"),
        (["--role", "planner"], "on both sides; write ROLE=MODEL"),
        (["--role", "a=m", "--role", "b=m", "--role", "a=n"], "--role a=... is given twice"),
        (["--role", "a=m", "--rule", "a:colour=red"], "not system, header or model"),
        (["--role", "a=m", "--rule", "b:model=x"], "a rule is for the role 'b'; known: a"),
        (["--role", "a=m", "--price", "a=x,1"], "--price a=x,1: 'x,1' is not two numbers"),
        (["--role", "a=m", "--price", "b=1,1"], "no role 'b'; known: a"),
        ([*TWO_SERVERS, "--key", "K"], "2 servers are used"),
    ):
        result = CliRunner().invoke(app, ["gateway", *words])
        assert isinstance(result.exception, ConfigError)
        assert problem in str(result.exception)


@pytest.mark.parametrize(
    ("words", "missing", "install"),
    [
        ([], "uvicorn", "pettingllms[gateway]"),
        (["--spans", "http://127.0.0.1:4318"], EXPORTER, "pettingllms[spans]"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(
    words: list[str], missing: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms.cli.gateway._players", None)
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(app, ["gateway", "--role", "a=m", *words])
    assert isinstance(result.exception, ConfigError), result.exception
    assert missing.partition(".")[0] in str(result.exception)
    assert install in str(result.exception)


def test_a_recording_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms.cli.gateway._players", None)
    (tmp_path / "episodes.jsonl").write_text("an earlier one\n")
    result = CliRunner().invoke(app, ["gateway", "--role", "a=m", "--out", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert "already holds a recording" in str(result.exception)
